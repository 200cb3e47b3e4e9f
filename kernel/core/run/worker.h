/* SPDX-License-Identifier: GPL-2.0 */
/*
 * worker.h - who runs the requests of a file while no task of its process waits: worker.c.
 */
#ifndef NPULINK_WORKER_H
#define NPULINK_WORKER_H

#include "file/file.h"

int npulink_worker_reserve(struct npulink_file *file);
void npulink_worker_unreserve(struct npulink_file *file);
void npulink_worker_init_file(struct npulink_file *file);
void npulink_worker_wake(struct npulink_file *file);
void npulink_worker_drain(struct npulink_file *file);
void npulink_worker_end(struct npulink_file *file);
int npulink_worker_init(void);
void npulink_worker_exit(void);

#endif /* NPULINK_WORKER_H */
