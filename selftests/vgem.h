/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vgem.h - memory of another driver, and a device that seems to be at work on it: vgem.
 * Of its ABI (drm/drm.h, drm/vgem_drm.h) only what is needed, as few machines have those headers.
 */
#ifndef SELFTESTS_VGEM_H
#define SELFTESTS_VGEM_H

#include <linux/ioctl.h>
#include "raw.h"

struct vgem_dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};

struct vgem_prime {
	uint32_t handle, flags;
	int32_t fd;
};

struct vgem_attach {
	uint32_t handle, flags, out_fence, pad;
};

struct vgem_signal {
	uint32_t fence, flags;
};

#define VGEM_DUMB	_IOWR('d', 0xb2, struct vgem_dumb)
#define VGEM_PRIME	_IOWR('d', 0x2d, struct vgem_prime)
#define VGEM_ATTACH	_IOWR('d', 0x41, struct vgem_attach)
#define VGEM_SIGNAL	_IOW('d', 0x42, struct vgem_signal)
#define VGEM_WRITES	1

struct vgem {
	int card, fd;		/* of the driver, and of the dma-buf */
	uint32_t handle, fence;
};

/* Memory of @len bytes; false if there is no vgem. */
static inline bool vgem_open(struct vgem *v, uint32_t len)
{
	struct vgem_dumb dumb = { .height = 1, .width = len / 4, .bpp = 32 };
	struct vgem_prime prime = { .flags = O_CLOEXEC | O_RDWR };
	struct vgem_attach probe = {};

	if (system("modprobe vgem 2>/dev/null"))
		return false;
	v->card = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
	/* Another driver does not know the call. */
	if (v->card < 0 || (ioctl(v->card, VGEM_ATTACH, &probe) && errno != ENOENT) ||
	    ioctl(v->card, VGEM_DUMB, &dumb))
		return false;
	v->handle = prime.handle = dumb.handle;
	RAW_CHECK(!ioctl(v->card, VGEM_PRIME, &prime));
	v->fd = prime.fd;
	return true;
}

/* A device begins to write to it .. */
static inline int vgem_begin(struct vgem *v)
{
	struct vgem_attach attach = { .handle = v->handle, .flags = VGEM_WRITES };
	int rc = ioctl(v->card, VGEM_ATTACH, &attach) ? -errno : 0;

	v->fence = attach.out_fence;
	return rc;
}

/* .. and has done so. */
static inline int vgem_end(struct vgem *v)
{
	struct vgem_signal signal = { .fence = v->fence };

	return ioctl(v->card, VGEM_SIGNAL, &signal) ? -errno : 0;
}

#endif /* SELFTESTS_VGEM_H */
