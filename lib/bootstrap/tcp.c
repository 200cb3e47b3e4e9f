// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tcp.c - the exchange over sockets, among ranks that have formed a tree.
 *
 * What all ranks of a subtree say goes up in one frame, and the whole table comes down.
 * If a rank does not get there, rank 0 tells all of them the same line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "bootstrap/tcp.h"

#define BODY_MAX	(64U << 20)

/* What a subtree says, one after the other: rank, bytes. */
struct heap {
	uint8_t *data;
	size_t len, max;
};

static int tcp_open(struct coll_bootstrap *b)
{
	struct coll_tcp *t;
	int rc;

	if (b->nranks == 1)
		return 0;
	t = calloc(1, sizeof(*t));
	b->priv = t;
	if (!t)
		goto no_memory;
	t->doors[DOOR_LOCAL].fd = -1;
	t->doors[DOOR_LOCAL].local = true;
	t->doors[DOOR_NET].fd = -1;
	t->parent.fd = -1;
	t->max_strangers = coll_most_strangers();
	if (b->rank) {
		rc = coll_enter(b);
		return rc ? rc : coll_serve(b);
	}
	t->missing = b->nranks - 1;
	t->here = calloc(b->nranks, sizeof(*t->here));
	t->from = calloc(b->nranks, sizeof(*t->from));
	if (!t->here || !t->from)
		goto no_memory;
	t->here[0] = true;
	snprintf(t->from[0], sizeof(t->from[0]), "rank 0");
	rc = coll_listen_root(b, &t->doors[DOOR_NET]);
	if (rc)
		return rc;
	t->doors[DOOR_NET].entry = true;
	/* If another rank was first on this machine, the others go to that one. */
	t->doors[DOOR_LOCAL].entry = !coll_listen_machine(b, &t->doors[DOOR_LOCAL]);
	return coll_serve(b);
no_memory:
	return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
}

static int went_away(struct coll_bootstrap *b, const struct coll_conn *c, int rc)
{
	return coll_text(b->text, sizeof(b->text), coll_conn_error(rc),
			 "rank %u (%s) went away while joining (%s): look for its own error message",
			 c->rank, c->from, strerror(-rc));
}

/* What a child's subtree says; or a text of what is wrong there. */
static int gather_from(struct coll_bootstrap *b, struct coll_conn *c, size_t len,
		       struct heap *heap)
{
	size_t room = heap->max - heap->len;
	struct coll_frame f;
	int rc;

	/*
	 * All are there, and somebody has come who is one of them once more: before its parent
	 * was told that there is nobody left to wait for.
	 */
	do {
		rc = coll_frame_get(b, c, &f, heap->data + heap->len,
				    room > COLL_TEXT ? room : COLL_TEXT);
		if (!rc && f.type == FRAME_MEMBER) {
			rc = coll_hear_member(b, &f, heap->data + heap->len);
			if (rc && rc != -EBADMSG)
				return rc;
			/* It might say so for ever. */
			if (!rc && !coll_remaining_ms(b))
				rc = -ETIMEDOUT;
		}
	} while (!rc && f.type == FRAME_MEMBER);
	if (!rc && f.type == FRAME_ERROR && f.status < 0 && f.status > -4096)
		return coll_text(b->text, sizeof(b->text), f.status, "%.*s", (int)f.len,
				 heap->data + heap->len);
	if (!rc && (f.type != FRAME_DATA || f.len > room || f.len % (sizeof(uint32_t) + len)))
		rc = -EBADMSG;
	if (!rc) {
		heap->len += f.len;
		return 0;
	}
	return went_away(b, c, rc);
}

/* Rank 0 has all: to their places. */
static int sort(struct coll_bootstrap *b, const struct heap *heap, size_t len, uint8_t *all)
{
	struct coll_tcp *t = b->priv;
	uint32_t rank, n = 0;

	memset(t->here, 0, b->nranks * sizeof(*t->here));
	for (size_t i = 0; i < heap->len; i += sizeof(rank) + len) {
		memcpy(&rank, heap->data + i, sizeof(rank));
		if (rank >= b->nranks || t->here[rank])
			break;
		t->here[rank] = true;
		memcpy(all + rank * len, heap->data + i + sizeof(rank), len);
		n++;
	}
	if (n == b->nranks)
		return 0;
	return coll_text(b->text, sizeof(b->text), -EPROTO,
			 "what %u ranks said while joining did not come whole: use one version on all ranks",
			 b->nranks - n);
}

static int tcp_allgather(struct coll_bootstrap *b, const void *mine, size_t len, void *all)
{
	struct coll_tcp *t = b->priv;
	struct heap heap = { .max = b->nranks * (sizeof(b->rank) + len) };
	int rc = 0, status = 0;

	if (b->nranks == 1) {
		memcpy(all, mine, len);
		return 0;
	}
	if (len > BODY_MAX / b->nranks)
		return coll_text(b->text, sizeof(b->text), -E2BIG, "too many ranks");
	/* A text may come instead of the last bytes. */
	heap.data = malloc(heap.max + COLL_TEXT);
	if (!heap.data)
		return coll_text(b->text, sizeof(b->text), -ENOMEM, "out of memory");
	memcpy(heap.data, &b->rank, sizeof(b->rank));
	memcpy(heap.data + sizeof(b->rank), mine, len);
	heap.len = sizeof(b->rank) + len;
	for (uint32_t i = 0; i < t->children.n && !rc; i++)
		rc = gather_from(b, t->children.at[i], len, &heap);
	if (!b->rank) {
		rc = rc ? rc : sort(b, &heap, len, all);
	} else {
		/* Also if it failed: rank 0 then says what to all. */
		if (rc)
			rc = coll_frame_send(b, &t->parent, FRAME_ERROR, rc, b->text,
					     strlen(b->text));
		else
			rc = coll_frame_send(b, &t->parent, FRAME_DATA, 0, heap.data, heap.len);
		/* If it does not take it any more, it has said why. */
		if (rc != -ETIMEDOUT)
			rc = coll_frame_recv(b, &t->parent, FRAME_DATA, all, b->nranks * len,
					     &status);
		if (rc)
			rc = coll_parent_failed(b, &t->parent, rc, status);
	}
	explicit_bzero(heap.data, heap.max);
	free(heap.data);
	for (uint32_t i = 0; i < t->children.n && !rc; i++) {
		struct coll_conn *c = t->children.at[i];

		rc = coll_frame_send(b, c, FRAME_DATA, 0, all, b->nranks * len);
		if (rc)
			rc = went_away(b, c, rc);
	}
	return rc ? coll_give_up(b, rc) : 0;
}

static void tcp_close(struct coll_bootstrap *b)
{
	struct coll_tcp *t = b->priv;

	if (!t)
		return;
	for (unsigned int i = 0; i < ARRAY_SIZE(t->doors); i++) {
		coll_door_close(&t->doors[i]);
		free(t->doors[i].seats);
	}
	coll_conn_close(&t->parent);
	coll_conns_close(&t->children);
	coll_conns_close(&t->strangers);
	coll_conns_close(&t->entering);
	free(t->polls);
	free(t->here);
	free(t->from);
	free(t);
	b->priv = NULL;
}

const struct coll_bootstrap_ops coll_bootstrap_tcp = {
	.name = "tcp",
	.open = tcp_open,
	.allgather = tcp_allgather,
	.close = tcp_close,
};
