/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hot.h - functions that are kept together.
 */
#ifndef NPULINK_HOT_H
#define NPULINK_HOT_H

/*
 * What ranks run that wait for each other in POST: where they share a processor, each that gets it finds
 * none of the pages in the TLB, nor much of what is in them in the caches.
 */
#define npulink_hot __attribute__((__hot__))

#endif /* NPULINK_HOT_H */
