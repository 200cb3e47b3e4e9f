// SPDX-License-Identifier: GPL-2.0
/*
 * debugfs.c - the knobs, below /sys/kernel/debug/npulink_soft/. For tests and
 * experiments; no interface that is kept. Numbers of 32 bits:
 *
 *	npuN/drop_irq	the next n completions raise no interrupt; they
 *			are found by the next one that does
 *	npuN/dup_irq	the next n interrupts come twice
 *	npuN/fail_post	the next n requests fail with EIO
 *	npuN/corrupt	the next n results have a bit flipped
 *	npuN/corrupt_link	the same, counting only those with an input from a link
 *	npuN/delay_ns	completions come so much later
 *	npuN/delay	only the next n completions do; 4294967295: all
 *	npuN/skip	let n of what drop_irq, dup_irq, fail_post, corrupt, corrupt_link or
 *			delay, if it is set, would act on pass first
 *	npuN/hit_step	step of the last request that one of them acted on, and the device
 *	npuN/hit_from	that its first input from a link came from; 4294967295: local
 *	npuN/fault	written: the device reports that it is broken, with this errno
 *	npuN/hold	let n requests through, hold all others;
 *			4294967295: hold none, and release those that are held
 *	npuN/release	written: let n of the held requests go, oldest first
 *	npuN/held	how many are held now
 *	npuN/lost	how many completions wait for another's interrupt
 *	npuN/irq_ns	how long interrupts may go on before a worker takes over; 0: it
 *			reports everything
 *	npuN/polled	how many completions and doorbells one has reported
 *	npuN/timing	"PEER alpha_ns beta_ps gamma_ps" for each device; written
 *			so, or with "all" as PEER; the own name: local work
 *	npuN/link	"PEER up" or "PEER down" for each device: its link to PEER;
 *			written so, or with "all" as PEER
 *	engine		which loops are used; written: scalar, swar, sse2, avx2, avx512, auto
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include "soft.h"

#define SOFT_MODEL_MAX_NS	(10ULL * NSEC_PER_SEC)
#define SOFT_MODEL_MAX_PS	1000000000ULL

static struct dentry *soft_debugfs;

#define SOFT_KNOB(name, knob)							\
static int name ## _get(void *data, u64 *value)				\
{										\
	*value = soft_fault_get(data, knob);					\
	return 0;								\
}										\
										\
static int name ## _set(void *data, u64 value)					\
{										\
	if (value > U32_MAX)							\
		return -ERANGE;							\
	soft_fault_set(data, knob, value);					\
	return 0;								\
}										\
										\
DEFINE_DEBUGFS_ATTRIBUTE(name ## _fops, name ## _get, name ## _set, "%llu\n")

SOFT_KNOB(drop_irq, SOFT_DROP_IRQ);
SOFT_KNOB(dup_irq, SOFT_DUP_IRQ);
SOFT_KNOB(fail_post, SOFT_FAIL_POST);
SOFT_KNOB(corrupt, SOFT_CORRUPT);
SOFT_KNOB(corrupt_link, SOFT_CORRUPT_LINK);
SOFT_KNOB(delay_ns, SOFT_DELAY_NS);
SOFT_KNOB(delay, SOFT_DELAY);
SOFT_KNOB(skip, SOFT_SKIP);
SOFT_KNOB(hold, SOFT_HOLD);

static const struct {
	const char *name;
	const struct file_operations *fops;
} soft_knob_files[] = {
	{ "drop_irq", &drop_irq_fops },
	{ "dup_irq", &dup_irq_fops },
	{ "fail_post", &fail_post_fops },
	{ "corrupt", &corrupt_fops },
	{ "corrupt_link", &corrupt_link_fops },
	{ "delay_ns", &delay_ns_fops },
	{ "delay", &delay_fops },
	{ "skip", &skip_fops },
	{ "hold", &hold_fops },
};

static int release_set(void *data, u64 value)
{
	soft_fault_release(data, min_t(u64, value, U32_MAX));
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(release_fops, NULL, release_set, "%llu\n");

static int fault_set(void *data, u64 value)
{
	struct soft_dev *sd = data;

	if (!value || value > MAX_ERRNO)
		return -ERANGE;
	npulink_fault(sd->dev, -(int)value);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(fault_fops, NULL, fault_set, "%llu\n");

/* Copy a line that was written, without its end, as a string. */
static int soft_debugfs_line(char *line, size_t size, const char __user *ubuf, size_t len)
{
	if (len >= size)
		return -EINVAL;
	if (copy_from_user(line, ubuf, len))
		return -EFAULT;
	line[len] = '\0';
	return 0;
}

static int timing_show(struct seq_file *m, void *unused)
{
	struct soft_dev *sd = m->private, *peer;
	struct soft_model model;
	unsigned long flags;

	mutex_lock(&soft_devices_lock);
	list_for_each_entry(peer, &soft_devices, node) {
		raw_spin_lock_irqsave(&sd->lock, flags);
		model = sd->models[peer->index];
		raw_spin_unlock_irqrestore(&sd->lock, flags);
		seq_printf(m, "npu%u %llu %llu %llu\n", peer->dev->id, model.alpha_ns,
			   model.beta_ps, model.gamma_ps);
	}
	mutex_unlock(&soft_devices_lock);
	return 0;
}

static ssize_t timing_write(struct file *file, const char __user *ubuf, size_t len, loff_t *pos)
{
	struct soft_dev *sd = ((struct seq_file *)file->private_data)->private, *peer;
	struct soft_model model = {};
	char line[96], who[16];
	bool found = false;
	int rc;

	rc = soft_debugfs_line(line, sizeof(line), ubuf, len);
	if (rc)
		return rc;
	if (sscanf(line, "%15s %llu %llu %llu", who, &model.alpha_ns, &model.beta_ps,
		   &model.gamma_ps) != 4)
		return -EINVAL;
	if (model.alpha_ns > SOFT_MODEL_MAX_NS || model.beta_ps > SOFT_MODEL_MAX_PS ||
	    model.gamma_ps > SOFT_MODEL_MAX_PS)
		return -ERANGE;
	mutex_lock(&soft_devices_lock);
	list_for_each_entry(peer, &soft_devices, node) {
		char name[16];

		snprintf(name, sizeof(name), "npu%u", peer->dev->id);
		if (strcmp(who, "all") && strcmp(who, name))
			continue;
		soft_timing_set(sd, peer, &model);
		found = true;
	}
	mutex_unlock(&soft_devices_lock);
	return found ? len : -ENODEV;
}

static int timing_open(struct inode *inode, struct file *file)
{
	return single_open(file, timing_show, inode->i_private);
}

static const struct file_operations timing_fops = {
	.owner = THIS_MODULE,
	.open = timing_open,
	.read = seq_read,
	.write = timing_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int link_show(struct seq_file *m, void *unused)
{
	struct soft_dev *sd = m->private, *peer;

	mutex_lock(&soft_devices_lock);
	list_for_each_entry(peer, &soft_devices, node)
		if (peer != sd)
			seq_printf(m, "npu%u %s\n", peer->dev->id,
				   test_bit(peer->index, sd->cut) ? "down" : "up");
	mutex_unlock(&soft_devices_lock);
	return 0;
}

static ssize_t link_write(struct file *file, const char __user *ubuf, size_t len, loff_t *pos)
{
	struct soft_dev *sd = ((struct seq_file *)file->private_data)->private, *peer;
	char line[32], who[16], state[8];
	bool found = false, down;
	int rc;

	rc = soft_debugfs_line(line, sizeof(line), ubuf, len);
	if (rc)
		return rc;
	if (sscanf(line, "%15s %7s", who, state) != 2)
		return -EINVAL;
	down = !strcmp(state, "down");
	if (!down && strcmp(state, "up"))
		return -EINVAL;
	mutex_lock(&soft_devices_lock);
	list_for_each_entry(peer, &soft_devices, node) {
		char name[16];

		snprintf(name, sizeof(name), "npu%u", peer->dev->id);
		if (peer == sd || (strcmp(who, "all") && strcmp(who, name)))
			continue;
		soft_link_cut(sd, peer, down);
		found = true;
	}
	mutex_unlock(&soft_devices_lock);
	return found ? len : -ENODEV;
}

static int link_open(struct inode *inode, struct file *file)
{
	return single_open(file, link_show, inode->i_private);
}

static const struct file_operations link_fops = {
	.owner = THIS_MODULE,
	.open = link_open,
	.read = seq_read,
	.write = link_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int engine_show(struct seq_file *m, void *unused)
{
	soft_select_show(m);
	return 0;
}

static ssize_t engine_write(struct file *file, const char __user *ubuf, size_t len, loff_t *pos)
{
	char line[16];
	int rc;

	rc = soft_debugfs_line(line, sizeof(line), ubuf, len);
	if (!rc)
		rc = soft_select_force(strim(line));
	return rc ? rc : len;
}

static int engine_open(struct inode *inode, struct file *file)
{
	return single_open(file, engine_show, NULL);
}

static const struct file_operations engine_fops = {
	.owner = THIS_MODULE,
	.open = engine_open,
	.read = seq_read,
	.write = engine_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void soft_debugfs_add(struct soft_dev *sd)
{
	char name[16];
	unsigned int i;

	snprintf(name, sizeof(name), "npu%u", sd->dev->id);
	sd->debugfs = debugfs_create_dir(name, soft_debugfs);
	for (i = 0; i < ARRAY_SIZE(soft_knob_files); i++)
		debugfs_create_file_unsafe(soft_knob_files[i].name, 0600, sd->debugfs, sd,
					   soft_knob_files[i].fops);
	debugfs_create_file_unsafe("release", 0200, sd->debugfs, sd, &release_fops);
	debugfs_create_file_unsafe("fault", 0200, sd->debugfs, sd, &fault_fops);
	debugfs_create_u32("hit_step", 0400, sd->debugfs, &sd->hit_step);
	debugfs_create_u32("hit_from", 0400, sd->debugfs, &sd->hit_from);
	debugfs_create_u32("held", 0400, sd->debugfs, &sd->nheld);
	debugfs_create_u32("lost", 0400, sd->debugfs, &sd->nlost);
	debugfs_create_u32("irq_ns", 0600, sd->debugfs, &sd->irq_ns);
	debugfs_create_atomic_t("polled", 0400, sd->debugfs, &sd->polled);
	debugfs_create_file("timing", 0600, sd->debugfs, sd, &timing_fops);
	debugfs_create_file("link", 0600, sd->debugfs, sd, &link_fops);
}

void soft_debugfs_remove(struct soft_dev *sd)
{
	debugfs_remove_recursive(sd->debugfs);
}

void soft_debugfs_init(void)
{
	soft_debugfs = debugfs_create_dir("npulink_soft", NULL);
	debugfs_create_file("engine", 0600, soft_debugfs, NULL, &engine_fops);
}

void soft_debugfs_exit(void)
{
	debugfs_remove_recursive(soft_debugfs);
}
