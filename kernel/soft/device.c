// SPDX-License-Identifier: GPL-2.0
/*
 * device.c - the module, and the making and unmaking of its devices: ndev at load,
 * more and fewer by
 *
 *	echo NUMBER >/sys/devices/npulink_soft/new_device
 *	echo npuN   >/sys/devices/npulink_soft/del_device
 *
 * Software NPUs are on no bus: nothing finds or binds them, so a bus of their own
 * would be an empty shell. They are children of one root device, which has those
 * two attributes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/idr.h>
#include <linux/log2.h>
#include <linux/module.h>
#include "soft.h"

#define SOFT_SLICE_MIN	4096U
#define SOFT_SLICE_MAX	(64U << 20)

static unsigned int ndev = 2;
module_param(ndev, uint, 0444);
MODULE_PARM_DESC(ndev, "devices to make at load, up to 64 (2)");

static unsigned int slice = 128 << 10;
module_param(slice, uint, 0444);
MODULE_PARM_DESC(slice, "bytes that a device handles at a time, a power of two (131072)");

/*
 * Protects the list of devices and inline_max; not held while a device is made
 * or unmade, since that waits for users of its files, who may want it.
 */
DEFINE_MUTEX(soft_devices_lock);
LIST_HEAD(soft_devices);

struct workqueue_struct *soft_wq;	/* soft_vector.poll */

static DEFINE_IDA(soft_ida);
static struct device *soft_root;
static const char soft_fabric;
static unsigned int soft_processors;	/* when the module was loaded: the same for all ranks */

static unsigned int inline_max = 16 << 10;

static int soft_inline_max_set(const char *value, const struct kernel_param *kp)
{
	struct soft_dev *sd;
	int rc;

	mutex_lock(&soft_devices_lock);
	rc = param_set_uint(value, kp);
	if (!rc) {
		list_for_each_entry(sd, &soft_devices, node)
			WRITE_ONCE(sd->dev->inline_max, inline_max);
	}
	mutex_unlock(&soft_devices_lock);
	return rc;
}

static const struct kernel_param_ops soft_inline_max_ops = {
	.set = soft_inline_max_set,
	.get = param_get_uint,
};

module_param_cb(inline_max, &soft_inline_max_ops, &inline_max, 0644);
MODULE_PARM_DESC(inline_max, "up to this many bytes, complete without interrupt (16384)");

static void soft_quiesce(struct npulink_device *dev)
{
	struct soft_dev *sd = to_soft_dev(dev);

	WRITE_ONCE(sd->quiesced, true);
	soft_timing_quiesce(sd);
	soft_irq_quiesce(sd);
}

static const struct npulink_device_ops soft_device_ops = {
	.submit = soft_submit,
	.run = soft_run_now,
	.cancel = soft_cancel,
	.quiesce = soft_quiesce,
};

static int soft_device_add(void)
{
	struct npulink_device *dev;
	struct soft_dev *sd;
	int index, rc;

	index = ida_alloc_max(&soft_ida, SOFT_MAX_DEVICES - 1, GFP_KERNEL);
	if (index < 0)
		return index;
	dev = npulink_device_alloc(THIS_MODULE, &soft_device_ops, soft_root, sizeof(*sd));
	if (IS_ERR(dev)) {
		rc = PTR_ERR(dev);
		goto err_ida;
	}
	sd = to_soft_dev(dev);
	sd->dev = dev;
	sd->index = index;
	soft_fault_init(sd);
	soft_timing_init(sd);
	rc = soft_irq_init(sd);
	if (rc)
		goto err_put;
	dev->link_ops = &soft_link_ops;
	dev->fabric = &soft_fabric;
	strscpy(dev->backend, "soft", sizeof(dev->backend));
	soft_select_describe(dev->engine, sizeof(dev->engine));
	dev->dtypes = soft_select_dtypes();
	dev->redops = BIT(NPULINK_REDOPS) - 1;
	dev->slice = slice;
	dev->inline_max = inline_max;
	dev->processors = soft_processors;
	rc = npulink_device_register(dev);
	if (rc)
		goto err_irq;
	mutex_lock(&soft_devices_lock);
	list_add_tail(&sd->node, &soft_devices);
	WRITE_ONCE(dev->inline_max, inline_max);
	mutex_unlock(&soft_devices_lock);
	soft_debugfs_add(sd);
	dev_dbg(&dev->dev, "engine %s\n", dev->engine);
	return 0;

err_irq:
	soft_irq_exit(sd);
err_put:
	npulink_device_put(dev);
err_ida:
	ida_free(&soft_ida, index);
	return rc;
}

/* @sd is on no list any more, so this is its only user. */
static void soft_device_del(struct soft_dev *sd)
{
	struct npulink_device *dev = sd->dev;
	unsigned int index = sd->index;
	struct soft_model none = {};
	struct soft_dev *other;

	soft_debugfs_remove(sd);
	npulink_device_unregister(dev);
	soft_irq_exit(sd);
	mutex_lock(&soft_devices_lock);
	list_for_each_entry(other, &soft_devices, node) {
		soft_timing_set(other, sd, &none);
		soft_link_cut(other, sd, false);
	}
	mutex_unlock(&soft_devices_lock);
	npulink_device_put(dev);
	ida_free(&soft_ida, index);
}

/* Take the device npu@id, or with -1 the last one, off the list. */
static struct soft_dev *soft_device_take(int id)
{
	struct soft_dev *sd, *found = NULL;

	mutex_lock(&soft_devices_lock);
	list_for_each_entry_reverse(sd, &soft_devices, node) {
		if (id >= 0 && sd->dev->id != id)
			continue;
		list_del(&sd->node);
		found = sd;
		break;
	}
	mutex_unlock(&soft_devices_lock);
	return found;
}

static void soft_device_del_all(void)
{
	struct soft_dev *sd;

	while ((sd = soft_device_take(-1)))
		soft_device_del(sd);
}

static ssize_t new_device_store(struct device *root, struct device_attribute *attr,
				const char *text, size_t len)
{
	unsigned int n;
	int rc;

	rc = kstrtouint(text, 0, &n);
	if (rc)
		return rc;
	if (!n || n > SOFT_MAX_DEVICES)
		return -EINVAL;
	while (!rc && n--)
		rc = soft_device_add();
	return rc ? rc : len;
}

static DEVICE_ATTR_WO(new_device);

static ssize_t del_device_store(struct device *root, struct device_attribute *attr,
				const char *text, size_t len)
{
	struct soft_dev *sd;
	int id, rc;

	rc = kstrtoint(strncmp(text, "npu", 3) ? text : text + 3, 10, &id);
	if (rc)
		return rc;
	sd = id < 0 ? NULL : soft_device_take(id);
	if (!sd)
		return -ENOENT;
	soft_device_del(sd);
	return len;
}

static DEVICE_ATTR_WO(del_device);

static struct attribute *soft_root_attrs[] = {
	&dev_attr_new_device.attr,
	&dev_attr_del_device.attr,
	NULL
};

ATTRIBUTE_GROUPS(soft_root);

static int __init soft_init(void)
{
	unsigned int i;
	int rc;

	soft_processors = num_online_cpus();

	if (ndev > SOFT_MAX_DEVICES || !is_power_of_2(slice) || slice < SOFT_SLICE_MIN ||
	    slice > SOFT_SLICE_MAX) {
		pr_err("ndev has to be at most %u, slice a power of 2 from %u to %u\n",
		       SOFT_MAX_DEVICES, SOFT_SLICE_MIN, SOFT_SLICE_MAX);
		return -EINVAL;
	}
	rc = soft_select_init();
	if (rc)
		return rc;
	soft_wq = alloc_workqueue("npulink_soft", WQ_UNBOUND, 0);
	if (!soft_wq) {
		rc = -ENOMEM;
		goto err_select;
	}
	soft_root = root_device_register("npulink_soft");
	if (IS_ERR(soft_root)) {
		rc = PTR_ERR(soft_root);
		goto err_wq;
	}
	soft_debugfs_init();
	for (i = 0; !rc && i < ndev; i++)
		rc = soft_device_add();
	if (rc)
		goto err_devices;
	rc = sysfs_create_groups(&soft_root->kobj, soft_root_groups);
	if (rc)
		goto err_devices;
	return 0;

err_devices:
	soft_device_del_all();
	soft_debugfs_exit();
	root_device_unregister(soft_root);
err_wq:
	destroy_workqueue(soft_wq);
err_select:
	soft_select_exit();
	return rc;
}

static void __exit soft_exit(void)
{
	/* First the attributes, which waits for their users: no device is made any more. */
	sysfs_remove_groups(&soft_root->kobj, soft_root_groups);
	soft_device_del_all();
	soft_debugfs_exit();
	root_device_unregister(soft_root);
	destroy_workqueue(soft_wq);
	soft_select_exit();
}

module_init(soft_init);
module_exit(soft_exit);
MODULE_DESCRIPTION("npulink software NPU");
MODULE_LICENSE("GPL");
NPULINK_IMPORT_NS(NPULINK);
