// SPDX-License-Identifier: GPL-2.0
/*
 * board.c - memory where ranks of one machine meet without a system call: see
 * linux/npulink_board.h, which has the rules.
 *
 * The kernel makes the memory, says in it what all have to know, and is the judge: the first
 * POST of a number decides whether the operation is met on the board. For that it says first
 * that it was posted, and then looks for the flags. A rank that puts its flag later sees that,
 * and so does whoever sees that flag. What ranks write is theirs: a wrong flag makes them disagree
 * among each other, which they could do by what they bring as well. A number is bounded by what
 * the kernel knows, see npulink_board_sync().
 */
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <npulink/compat.h>
#include "base/clock.h"
#include "base/hot.h"
#include "base/number.h"
#include "comm/comm.h"
#include "file/file.h"
#include "run/board.h"

/*
 * Who says on the board how many collectives a rank has met is its process. No process meets more
 * than one in a nanosecond, so that is how many it is believed; in hundreds of years no number
 * comes near its wrap. Processors' clocks may differ by so many.
 */
#define BOARD_SLACK	(10 * NSEC_PER_MSEC)

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
			   board_reasons || !npulink_boards || !npulink_scripts);
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

/* ---- the judge ------------------------------------------------------------------------- */

/* A board that all ranks can use, or NULL. */
npulink_hot struct npulink_board *npulink_board_of(struct npulink_comm *comm)
{
	/* Pairs with npulink_board_get(). */
	struct npulink_board *board = smp_load_acquire(&comm->board);

	/* Pairs with npulink_board_area(). */
	return board && smp_load_acquire(&board->nareas) == comm->nranks ? board : NULL;
}

/*
 * What @rank says that it has met on the board since it last posted, nobody else counts: not the
 * totals. Returns -EOVERFLOW if that cannot be. Under its lock.
 */
int npulink_board_sync(struct npulink_rank *rank)
{
	struct npulink_board *board = npulink_board_of(rank->comm);
	u64 known = npulink_told(rank->next), next;

	lockdep_assert_held(&rank->lock);
	if (!board)
		return 0;
	next = READ_ONCE(board->areas[rank->rank]->next);
	if (next <= known)
		return 0;
	if (next > npulink_clock() - rank->born + BOARD_SLACK)
		return -EOVERFLOW;
	rank->met += next - known;
	WRITE_ONCE(rank->next, npulink_number(next));
	return 0;
}

/* The number of its next collective. Task context. */
u64 npulink_board_next(struct npulink_rank *rank)
{
	u64 next;

	spin_lock_irq(&rank->lock);
	npulink_board_sync(rank);
	next = rank->next;
	spin_unlock_irq(&rank->lock);
	return next;
}

/* What the slot of @rank says if it says @number, of whatever call; or 0. */
npulink_hot u64 npulink_board_flag(const struct npulink_board *board, u32 rank, u64 number)
{
	u64 flag = READ_ONCE(board->areas[rank]->slots[number % NPULINK_BOARD_SLOTS].flag);

	return flag >> 24 == NPULINK_BOARD_FLAG(number, 0) >> 24 ? flag : 0;
}

/* Do all slots of @number say the same? */
npulink_hot bool npulink_board_all(const struct npulink_board *board, u64 number)
{
	/* Each is read once: ranks write them meanwhile. */
	u64 flag = npulink_board_flag(board, 0, number);
	u32 i;

	for (i = 1; flag && i < board->nranks; i++)
		if (npulink_board_flag(board, i, number) != flag)
			return false;
	return flag;
}

/*
 * @rank is about to post the collective @number. True if it need not, as all have met on the board.
 * Under its lock.
 */
bool npulink_board_met(struct npulink_rank *rank, u64 number)
{
	struct npulink_comm *comm = rank->comm;
	struct npulink_board *board = npulink_board_of(comm);
	u64 *refused;
	bool met;
	u32 slot;

	lockdep_assert_held(&rank->lock);
	if (!board)
		return false;
	/* On the board they are as ranks know them, and too small to wrap. */
	number = npulink_told(number);
	slot = number % NPULINK_BOARD_SLOTS;
	/* Nobody is that far ahead: what needs all ranks is in flight until all have posted it. */
	refused = &board->refused[number % NPULINK_MAX_INFLIGHT];
	spin_lock(&comm->lock);
	if (board->off[slot] == number + 1) {
		met = board->met[slot];
	} else if (board->off[slot] > number + 1) {
		/*
		 * Somebody has posted a later one of this slot. He has met here, and then the flags
		 * are still there; or he has posted this one too, perhaps after he put his flag.
		 */
		met = *refused != number + 1 && npulink_board_all(board, number);
	} else {
		board->off[slot] = number + 1;
		WRITE_ONCE(board->comm->off[slot], number + 1);
		/* With the barrier of those who put a flag, and then look at off. */
		smp_mb();
		npulink_board_wake(board, 0);
		met = npulink_board_all(board, number);
		board->met[slot] = met;
		if (!met)
			*refused = number + 1;
	}
	spin_unlock(&comm->lock);
	return met;
}

/* @rank has posted. Under its lock. */
void npulink_board_posted(struct npulink_rank *rank)
{
	/* Pairs with npulink_board_get(). */
	struct npulink_board *board = smp_load_acquire(&rank->comm->board);

	lockdep_assert_held(&rank->lock);
	if (board)
		WRITE_ONCE(board->comm->posted[rank->rank], npulink_told(rank->next));
}

/* The cause has been recorded. Under comm->lock. */
void npulink_board_failed(struct npulink_comm *comm)
{
	lockdep_assert_held(&comm->lock);
	if (!comm->board)
		return;
	WRITE_ONCE(comm->board->comm->failed, 1);
	smp_mb();	/* pairs with npulink_board_begin() */
	npulink_board_wake(comm->board, 0);
}

/* ---- the memory ------------------------------------------------------------------------ */

static void npulink_board_free(struct npulink_board *board)
{
	u32 i;

	if (!board)
		return;
	timer_shutdown_sync(&board->timer);
	for (i = 0; i < board->nranks; i++)
		vfree(board->areas[i]);
	vfree(board->comm);
	kfree(board);
}

/* Nobody uses @comm any more. */
void npulink_board_drop(struct npulink_comm *comm)
{
	npulink_board_free(comm->board);
}

/* That of @comm, made if it has none. */
static struct npulink_board *npulink_board_get(struct npulink_comm *comm)
{
	/* Pairs with the release below. */
	struct npulink_board *board = smp_load_acquire(&comm->board), *new;

	if (board)
		return board;
	new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	if (!new)
		return NULL;
	new->comm = __vmalloc(PAGE_ALIGN(sizeof(*new->comm)), GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!new->comm) {
		kfree(new);
		return NULL;
	}
	new->nranks = comm->nranks;
	new->turns = &comm->turns;
	npulink_board_wait_init(new);
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

/* What @rank writes; it stays as long as the communicator. */
static struct npulink_board_rank *npulink_board_area(struct npulink_rank *rank)
{
	struct npulink_comm *comm = rank->comm;
	struct npulink_board_rank *area, *new;
	struct npulink_board *board = npulink_board_get(comm);

	if (!board)
		return NULL;
	new = __vmalloc(PAGE_ALIGN(sizeof(*new)), GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!new)
		return NULL;
	spin_lock_irq(&rank->lock);
	spin_lock(&comm->lock);
	area = board->areas[rank->rank];
	if (!area) {
		area = new;
		new = NULL;
		board->areas[rank->rank] = area;
		WRITE_ONCE(board->comm->posted[rank->rank], npulink_told(rank->next));
		/* Whoever sees that all are there can look at them. */
		smp_store_release(&board->nareas, board->nareas + 1);
	}
	spin_unlock(&comm->lock);
	spin_unlock_irq(&rank->lock);
	vfree(new);
	return area;
}

/* @len bytes of @mem at *@addr, which moves behind them. */
static int npulink_board_insert(struct vm_area_struct *vma, unsigned long *addr, const void *mem,
				size_t len)
{
	size_t off;
	int rc;

	for (off = 0; off < len; off += PAGE_SIZE, *addr += PAGE_SIZE) {
		rc = vm_insert_page(vma, *addr, vmalloc_to_page(mem + off));
		if (rc)
			return rc;
	}
	return 0;
}

static int npulink_board_map_own(struct npulink_rank *rank, struct vm_area_struct *vma)
{
	unsigned long addr = vma->vm_start;
	struct npulink_board_rank *area;

	if (vma->vm_end - vma->vm_start != PAGE_ALIGN(sizeof(*area)))
		return -EINVAL;
	area = npulink_board_area(rank);
	if (!area)
		return -ENOMEM;
	return npulink_board_insert(vma, &addr, area, PAGE_ALIGN(sizeof(*area)));
}

static int npulink_board_map_all(struct npulink_rank *rank, struct vm_area_struct *vma)
{
	struct npulink_board *board = npulink_board_of(rank->comm);
	const size_t len = PAGE_ALIGN(sizeof(struct npulink_board_rank));
	unsigned long addr = vma->vm_start;
	int rc;
	u32 i;

	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	if (vma->vm_end - vma->vm_start !=
	    PAGE_SIZE + PAGE_ALIGN(sizeof(*board->comm)) + rank->comm->nranks * len)
		return -EINVAL;
	if (!board)
		return -EAGAIN;
	npulink_vma_flags_clear(vma, VM_MAYWRITE);
	rc = npulink_board_insert(vma, &addr, board_machine, PAGE_SIZE);
	if (!rc)
		rc = npulink_board_insert(vma, &addr, board->comm,
					  PAGE_ALIGN(sizeof(*board->comm)));
	for (i = 0; !rc && i < rank->comm->nranks; i++)
		rc = npulink_board_insert(vma, &addr, board->areas[i], len);
	return rc;
}

/* mmap() at @off, one of NPULINK_MMAP_BOARD() or NPULINK_MMAP_BOARD_OWN(). */
int npulink_board_mmap(struct npulink_file *file, u64 off, struct vm_area_struct *vma)
{
	u64 id = (off - NPULINK_MMAP_BOARD(0)) >> NPULINK_BOARD_SHIFT;
	struct npulink_rank *rank;
	int rc;

	if (off != NPULINK_MMAP_BOARD(id) && off != NPULINK_MMAP_BOARD_OWN(id))
		return -EINVAL;
	rank = npulink_rank_lookup(file, id);
	if (IS_ERR(rank))
		return PTR_ERR(rank);
	npulink_vma_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	/* Users need not trust each other with processor time, nor with what they would read. */
	if (rank->comm->nranks > NPULINK_BOARD_RANKS || rank->comm->any_uid ||
	    rank->comm->checksum || READ_ONCE(rank->comm->far))
		rc = -EOPNOTSUPP;
	else if (off == NPULINK_MMAP_BOARD(id))
		rc = npulink_board_map_all(rank, vma);
	else
		rc = npulink_board_map_own(rank, vma);
	npulink_rank_put(rank);
	return rc;
}
