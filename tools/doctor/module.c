// SPDX-License-Identifier: GPL-2.0
/*
 * module.c - npulink doctor: are module and library there, do they fit the running
 * kernel and this program, and may the module be loaded?
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <libkmod.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <coll.h>
#include "doctor/doctor.h"

/* The module @name, whose file libkmod may know; NULL if it cannot say. Both go by module_put(). */
static struct kmod_module *module_get(const char *name, struct kmod_ctx **ctx)
{
	struct kmod_module *mod = NULL;

	*ctx = kmod_new(NULL, NULL);
	/* What it says is said by the findings. */
	if (*ctx)
		kmod_set_log_priority(*ctx, 0);
	if (*ctx && kmod_module_new_from_name(*ctx, name, &mod) < 0)
		mod = NULL;
	return mod;
}

static void module_put(struct kmod_module *mod, struct kmod_ctx *ctx)
{
	kmod_module_unref(mod);
	kmod_unref(ctx);
}

/* The value of @key in the information that a module file carries. */
static bool module_info(struct kmod_module *mod, const char *key, char *buf, size_t size)
{
	struct kmod_list *list = NULL, *item;
	bool ok = false;

	if (kmod_module_get_info(mod, &list) < 0)
		return false;
	kmod_list_foreach(item, list) {
		if (strcmp(kmod_module_info_get_key(item), key))
			continue;
		snprintf(buf, size, "%s", kmod_module_info_get_value(item));
		ok = true;
	}
	kmod_module_info_free_list(list);
	return ok;
}

/* Kernels for which a module is installed, other than the running one. */
static void other_kernels(const char *release, char *buf, size_t size)
{
	static const char *const patterns[] = {
		"/lib/modules/*/updates/dkms/npulink.ko*",
		"/lib/modules/*/updates/npulink.ko*",
		"/lib/modules/*/extra/npulink.ko*",
		"/lib/modules/*/updates/*/npulink.ko*",
		"/lib/modules/*/extra/*/npulink.ko*",
	};
	size_t len = 0;
	glob_t paths;
	char one[100];

	*buf = 0;
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		if (glob(patterns[i], 0, NULL, &paths))
			continue;
		for (size_t j = 0; j < paths.gl_pathc; j++) {
			const char *name = paths.gl_pathv[j] + strlen("/lib/modules/");
			int n = strcspn(name, "/");

			snprintf(one, sizeof(one), "%.*s", n, name);
			if (!strcmp(one, release) || strstr(buf, one))
				continue;
			if (len < size)
				len += snprintf(buf + len, size - len, "%s%s", len ? ", " : "",
						one);
		}
		globfree(&paths);
	}
}

static void check_installed(struct kmod_module *mod, const char *release, bool loaded)
{
	char vermagic[128], others[200], on_disk[64], in_kernel[64], *magic;
	const char *path = kmod_module_get_path(mod);
	struct finding *f;

	if (!path) {
		other_kernels(release, others, sizeof(others));
		f = found(loaded ? WARNING : ERROR, "installed",
			  "npulink is not installed for the running kernel %s%s%s", release,
			  *others ? ", but for " : "", others);
		if (*others)
			fix(f, "install linux-headers-%s, then: dkms autoinstall, or: make install",
			    release);
		else
			fix(f, "in npulink's source tree: make install");
		return;
	}
	if (!module_info(mod, "vermagic", vermagic, sizeof(vermagic))) {
		f = found(loaded ? WARNING : ERROR, "installed", "%s cannot be read as a module",
			  path);
		fix(f, "in npulink's source tree: make install");
		return;
	}
	magic = strchr(vermagic, ' ');
	if (magic)
		*magic = 0;
	if (strcmp(vermagic, release)) {
		f = found(loaded ? WARNING : ERROR, "installed",
			  "%s was built for kernel %s, this is %s", path, vermagic, release);
		fix(f, "in npulink's source tree: make install KDIR=/lib/modules/%s/build",
		    release);
		return;
	}
	if (loaded && module_info(mod, "srcversion", on_disk, sizeof(on_disk)) &&
	    read_line("/sys/module/npulink/srcversion", in_kernel, sizeof(in_kernel)) &&
	    strcmp(on_disk, in_kernel)) {
		f = found(WARNING, "installed", "the module that is loaded is not the one in %s",
			  path);
		fix(f, "when nothing uses it: rmmod npulink_soft npulink; modprobe npulink_soft");
		return;
	}
	found(OK, "installed", "%s", path);
}

bool check_module(void)
{
	struct kmod_ctx *ctx;
	struct kmod_module *mod = module_get("npulink", &ctx);
	struct utsname uts;
	char version[64] = "?";
	bool loaded = false;
	struct finding *f;
	int state;

	uname(&uts);
	if (!mod) {
		found(ERROR, "module", "libkmod cannot look for the module");
		found(UNTESTED, "installed", "libkmod cannot look for the module");
		goto out;
	}
	if (access("/sys/module", F_OK)) {
		f = found(UNTESTED, "module", "there is no /sys, which would say whether it is loaded");
		fix(f, "mount -t sysfs none /sys");
		/* What is looked at next says more. */
		loaded = true;
		check_installed(mod, uts.release, loaded);
		goto out;
	}
	state = kmod_module_get_initstate(mod);
	loaded = state == KMOD_MODULE_LIVE || state == KMOD_MODULE_BUILTIN;
	if (loaded) {
		read_line("/sys/module/npulink/version", version, sizeof(version));
		if (strcmp(version, NPULINK_VERSION)) {
			f = found(WARNING, "module", "npulink %s is loaded, this program is %s",
				  version, NPULINK_VERSION);
			fix(f, "install both from the same source, then load the module anew");
		} else {
			found(OK, "module", "npulink %s is loaded", version);
		}
	} else if (state == KMOD_MODULE_COMING || state == KMOD_MODULE_GOING) {
		f = found(ERROR, "module", "npulink is just being %s",
			  state == KMOD_MODULE_COMING ? "loaded" : "removed");
		fix(f, "look at: dmesg | grep npulink");
	} else {
		f = found(ERROR, "module", "npulink is not loaded");
		fix(f, "%smodprobe npulink_soft",
		    kmod_module_get_path(mod) ? "" : "in npulink's source tree: make install; then: ");
	}
	check_installed(mod, uts.release, loaded);
out:
	module_put(mod, ctx);
	return loaded;
}

/* Modules that nobody signed are refused where the kernel insists. */
void check_signature(void)
{
	char enforce[8] = "", lockdown[64] = "", signer[128];
	bool wanted, known, has_file, is_signed = false;
	struct kmod_module *mod;
	struct kmod_ctx *ctx;
	struct finding *f;

	known = read_line("/sys/module/module/parameters/sig_enforce", enforce, sizeof(enforce));
	/* Without securityfs there may be a lockdown that cannot be seen. */
	known &= read_line("/sys/kernel/security/lockdown", lockdown, sizeof(lockdown)) ||
		 !access("/sys/kernel/security/lsm", F_OK);
	wanted = enforce[0] == 'Y' || (*lockdown && !strstr(lockdown, "[none]"));
	mod = module_get("npulink", &ctx);
	has_file = mod && kmod_module_get_path(mod);
	if (has_file)
		is_signed = module_info(mod, "signer", signer, sizeof(signer));
	module_put(mod, ctx);
	if (!wanted && !known) {
		found(UNTESTED, "signature", "whether the kernel wants signed modules cannot be read");
		return;
	}
	if (wanted && !has_file) {
		found(UNTESTED, "signature",
		      "the kernel wants signed modules; npulink's is not installed here");
		return;
	}
	if (!wanted) {
		found(OK, "signature", "the kernel takes modules that are not signed");
		return;
	}
	if (is_signed) {
		found(OK, "signature", "the kernel wants signed modules; npulink is signed by %s",
		      signer);
		return;
	}
	f = found(WARNING, "signature", "the kernel wants signed modules, and npulink is not");
	fix(f, "sign it with a key that the machine trusts (mokutil, dkms), or turn secure boot off");
}

void check_backends(void)
{
	DIR *dir = opendir("/sys/module/npulink/holders");
	struct dirent *entry;
	struct finding *f;
	char list[200] = "";
	size_t len = 0;

	/* What uses npulink.ko, but for links to other machines, provides devices. */
	while (dir && (entry = readdir(dir)))
		if (*entry->d_name != '.' && strcmp(entry->d_name, "npulink_rdma") &&
		    len < sizeof(list))
			len += snprintf(list + len, sizeof(list) - len, " %s", entry->d_name);
	if (dir)
		closedir(dir);
	if (!dir) {
		found(UNTESTED, "backend", "/sys does not tell: %s", strerror(errno));
		return;
	}
	if (*list) {
		found(OK, "backend", "loaded:%s", list);
		return;
	}
	f = found(ERROR, "backend", "no module is loaded that provides devices");
	fix(f, "modprobe npulink_soft ndev=8");
}

/* What can be put right without asking: load the module. */
void fix_module(void)
{
	struct kmod_module *mod;
	struct kmod_ctx *ctx;
	struct finding *f;
	int rc = -ENOENT;

	if (!access("/sys/module/npulink_soft", F_OK))
		return;
	mod = module_get("npulink_soft", &ctx);
	if (mod)
		rc = kmod_module_probe_insert_module(mod, KMOD_PROBE_APPLY_BLACKLIST, NULL, NULL,
						     NULL, NULL);
	module_put(mod, ctx);
	if (!rc) {
		found(OK, "fix", "loaded npulink_soft");
		return;
	}
	if (rc > 0) {
		f = found(WARNING, "fix", "npulink_soft is not loaded: modprobe.d blacklists it");
		fix(f, "as root: modprobe npulink_soft");
		return;
	}
	f = found(WARNING, "fix", "npulink_soft cannot be loaded: %s", strerror(-rc));
	fix(f, geteuid() ? "run it as root" : rc == -ENOENT ?
	    "in npulink's source tree: make install" : "look at: dmesg | tail");
}

void check_library(void)
{
	const char *(*version_string)(void);
	struct finding *f;
	void *lib;

	/* The program has libcoll inside; applications look for it. */
	lib = dlopen("libcoll.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		f = found(WARNING, "library", "the dynamic linker cannot load it: %s", dlerror());
		fix(f, "make install; ldconfig; or set LD_LIBRARY_PATH");
		return;
	}
	version_string = (const char *(*)(void))dlsym(lib, "coll_version_string");
	if (!version_string) {
		f = found(WARNING, "library", "libcoll.so.0 is not npulink's");
		fix(f, "look at LD_LIBRARY_PATH, and: ldconfig -p | grep libcoll");
	} else if (strcmp(version_string(), COLL_VERSION_STRING)) {
		f = found(WARNING, "library", "libcoll.so.0 is %s, this program is %s",
			  version_string(), COLL_VERSION_STRING);
		fix(f, "install both from the same source; ldconfig");
	} else {
		found(OK, "library", "libcoll.so.0 is %s", version_string());
	}
	dlclose(lib);
}
