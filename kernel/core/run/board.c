// SPDX-License-Identifier: GPL-2.0
/*
 * board.c - memory that the ranks of a communicator on one node share, and two pages in which the
 * kernel says what they have to know: see linux/npulink_board.h.
 *
 * The kernel knows nothing of what is in the shared memory: it never reads or writes it. It is a
 * shmem file, so pages are charged to whoever touches them first, and shared futexes work on it.
 * Nobody has a descriptor of the file. It goes with the communicator and the last mapping.
 */
#include <linux/file.h>
#include <linux/moduleparam.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <npulink/compat.h>
#include "comm/comm.h"
#include "file/file.h"
#include "run/board.h"

/* ---- open and closed, for all ---------------------------------------------------------- */

static struct npulink_board_machine *board_machine;
/* Raw: a backend may say so from an interrupt, under a raw lock of its own. */
static DEFINE_RAW_SPINLOCK(board_machine_lock);	/* it, and .. */
static u32 board_reasons;			/* .. why it is closed */
static bool npulink_boards = true;

static void npulink_board_close(s32 reasons)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&board_machine_lock, flags);
	board_reasons += reasons;
	if (board_machine)
		WRITE_ONCE(board_machine->closed,
			   board_reasons || !npulink_boards || !npulink_graphs);
	raw_spin_unlock_irqrestore(&board_machine_lock, flags);
}

/* Of parameters that have a say in it. */
static int npulink_board_param_set(const char *val, const struct kernel_param *kp)
{
	int rc = param_set_bool(val, kp);

	npulink_board_close(0);
	return rc;
}

const struct kernel_param_ops npulink_board_param_ops = {
	.flags = KERNEL_PARAM_OPS_FL_NOARG,
	.set = npulink_board_param_set,
	.get = param_get_bool,
};

module_param_cb(boards, &npulink_board_param_ops, &npulink_boards, 0644);
MODULE_PARM_DESC(boards, "small collectives are done by ranks in memory that they share");

/* Somebody traces operations, which are to be seen. */
int npulink_trace_begin(void)
{
	npulink_board_close(1);
	return 0;
}

void npulink_trace_end(void)
{
	npulink_board_close(-1);
}

/* A device has become special, or is not any more. Any context but NMI. */
void npulink_board_special(bool special)
{
	npulink_board_close(special ? 1 : -1);
}

int npulink_board_init(void)
{
	board_machine = __vmalloc(PAGE_SIZE, GFP_KERNEL | __GFP_ZERO);
	if (!board_machine)
		return -ENOMEM;
	npulink_board_close(0);
	return 0;
}

void npulink_board_exit(void)
{
	vfree(board_machine);
}

/* ---- the memory ------------------------------------------------------------------------ */

/* The cause has been recorded. Under comm->lock. */
void npulink_board_failed(struct npulink_comm *comm)
{
	lockdep_assert_held(&comm->lock);
	if (comm->board)
		WRITE_ONCE(comm->board->comm->failed, 1);
}

static void npulink_board_free(struct npulink_board *board)
{
	if (!board)
		return;
	if (board->shared)
		fput(board->shared);
	vfree(board->comm);
	kfree(board);
}

/* Nobody uses @comm any more. */
void npulink_board_drop(struct npulink_comm *comm)
{
	npulink_board_free(comm->board);
}

static struct npulink_board *npulink_board_new(u32 nranks)
{
	struct npulink_board *board = kzalloc(sizeof(*board), GFP_KERNEL_ACCOUNT);
	int rc = -ENOMEM;

	if (!board)
		return ERR_PTR(rc);
	board->comm = __vmalloc(PAGE_SIZE, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!board->comm)
		goto err_board;
	/* Without VM_NORESERVE: who has no memory is told now, and not by a signal later. */
	board->shared = shmem_file_setup("npulink-board", nranks * NPULINK_BOARD_BYTES, 0);
	if (IS_ERR(board->shared)) {
		rc = PTR_ERR(board->shared);
		board->shared = NULL;
		goto err_board;
	}
	return board;

err_board:
	npulink_board_free(board);
	return ERR_PTR(rc);
}

/* That of @comm, made if it has none. */
static struct npulink_board *npulink_board_get(struct npulink_comm *comm)
{
	/* Pairs with the release below. */
	struct npulink_board *board = smp_load_acquire(&comm->board), *new;

	if (board)
		return board;
	new = npulink_board_new(comm->nranks);
	if (IS_ERR(new))
		return new;
	spin_lock_irq(&comm->lock);
	board = comm->board;
	if (!board) {
		new->comm->failed = comm->failed;
		/* Whoever sees it sees what is in it. */
		smp_store_release(&comm->board, new);
		board = new;
		new = NULL;
	}
	spin_unlock_irq(&comm->lock);
	npulink_board_free(new);
	return board;
}

/* What ranks write. From here on the mapping is one of the shmem file. */
static int npulink_board_map_shared(struct npulink_board *board, struct vm_area_struct *vma)
{
	vma_set_file(vma, board->shared);
	vma->vm_pgoff = 0;
	return call_mmap(board->shared, vma);
}

/* What the kernel writes. */
static int npulink_board_map_told(struct npulink_board *board, struct vm_area_struct *vma)
{
	int rc;

	npulink_vma_flags_clear(vma, VM_MAYWRITE);
	rc = vm_insert_page(vma, vma->vm_start, vmalloc_to_page(board_machine));
	return rc ?: vm_insert_page(vma, vma->vm_start + PAGE_SIZE, vmalloc_to_page(board->comm));
}

/* mmap() at @off, one of NPULINK_MMAP_BOARD() or NPULINK_MMAP_BOARD_SHARED(). */
int npulink_board_mmap(struct npulink_file *file, u64 off, struct vm_area_struct *vma)
{
	u64 id = (off - NPULINK_MMAP_BOARD(0)) >> NPULINK_BOARD_SHIFT;
	unsigned long len = vma->vm_end - vma->vm_start;
	bool shared = off == NPULINK_MMAP_BOARD_SHARED(id);
	struct npulink_board *board;
	struct npulink_rank *rank;
	int rc = 0;

	if (off != NPULINK_MMAP_BOARD(id) && !shared)
		return -EINVAL;
	rank = npulink_rank_lookup(file, id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	/* Users need not trust each other with processor time, nor with what they would read. */
	if (rank->comm->nranks > NPULINK_BOARD_RANKS || rank->comm->any_uid ||
	    rank->comm->checksum || READ_ONCE(rank->comm->far))
		rc = -EOPNOTSUPP;
	else if (!shared && vma->vm_flags & VM_WRITE)
		rc = -EACCES;
	else if (len != (shared ? rank->comm->nranks * NPULINK_BOARD_BYTES : 2 * PAGE_SIZE))
		rc = -EINVAL;
	if (rc)
		goto out;
	npulink_vma_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	board = npulink_board_get(rank->comm);
	if (IS_ERR(board))
		rc = PTR_ERR(board);
	else if (shared)
		rc = npulink_board_map_shared(board, vma);
	else
		rc = npulink_board_map_told(board, vma);
out:
	npulink_rank_put(rank);
	return rc;
}
