// SPDX-License-Identifier: GPL-2.0
/*
 * cov.c - coverage of the modules.
 *
 * A place is a call of __sanitizer_cov_trace_pc() that the compiler has put into a module;
 * KCOV tells those that a thread came by. All of them, and the functions that they are in,
 * are read from the modules' files, so that it can be said what is missing. What runs only
 * while a module is loaded or removed does not count. KCOV does not see interrupts and
 * workers.
 */
#include <elf.h>
#include <linux/kcov.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include "cov.h"
#include "kselftest.h"
#include "prog.h"
#include "raw.h"

#define KCOV_WORDS	(256 * 1024)
#define MAX_PLACES	65536
#define MAX_FUNCTIONS	4096

static const struct module {
	const char *name, *folder;
} modules[] = {
	{ "npulink", "core" },
	{ "npulink_soft", "soft" },
	{ "npulink_rdma", "rdma" },
};

static struct place {
	unsigned long pc;
	uint32_t module, function;
} places[MAX_PLACES];
static uint32_t nplaces, nreached;
static uint8_t seen[MAX_PLACES];

static struct function {
	char name[56];
	uint32_t module;
	unsigned long begin, end;
	bool places;
} functions[MAX_FUNCTIONS];
static uint32_t nfunctions;

static int fds[PROG_THREADS];
static unsigned long *areas[PROG_THREADS];
static bool on;

/* ---- what there is */

static const Elf64_Shdr *section(const char *elf, uint32_t i)
{
	const Elf64_Ehdr *eh = (const void *)elf;

	return (const void *)(elf + eh->e_shoff + (size_t)i * eh->e_shentsize);
}

static const char *string(const char *elf, const Elf64_Shdr *strings, uint32_t at)
{
	return elf + strings->sh_offset + at;
}

/* Where a section of a loaded module is; 0 if it has none, or that is gone. */
static unsigned long section_address(const char *module, const char *name)
{
	unsigned long address = 0;
	char path[160];
	FILE *f;

	if (!strncmp(name, ".init", 5) || !strncmp(name, ".exit", 5))
		return 0;
	snprintf(path, sizeof(path), "/sys/module/%s/sections/%s", module, name);
	f = fopen(path, "re");
	if (f && fscanf(f, "%lx", &address) != 1)
		address = 0;
	if (f)
		fclose(f);
	return address;
}

static void read_functions(const char *elf, uint32_t module, uint32_t target, unsigned long address)
{
	const Elf64_Ehdr *eh = (const void *)elf;
	uint32_t i, k;

	for (i = 0; i < eh->e_shnum; i++) {
		const Elf64_Shdr *sh = section(elf, i), *strings;
		const Elf64_Sym *syms = (const void *)(elf + sh->sh_offset);

		if (sh->sh_type != SHT_SYMTAB)
			continue;
		strings = section(elf, sh->sh_link);
		for (k = 0; k < sh->sh_size / sizeof(*syms); k++) {
			const char *name = string(elf, strings, syms[k].st_name);
			struct function *f = &functions[nfunctions];

			if (ELF64_ST_TYPE(syms[k].st_info) != STT_FUNC ||
			    syms[k].st_shndx != target || nfunctions == MAX_FUNCTIONS ||
			    !strncmp(name, "_sub_", 5))		/* KASAN's */
				continue;
			snprintf(f->name, sizeof(f->name), "%s", name);
			f->module = module;
			f->begin = address + syms[k].st_value;
			f->end = f->begin + syms[k].st_size;
			nfunctions++;
		}
	}
}

static uint32_t function_of(unsigned long pc)
{
	uint32_t i;

	for (i = 0; i < nfunctions; i++)
		if (pc > functions[i].begin && pc <= functions[i].end)
			return i;
	return MAX_FUNCTIONS;
}

/* One table of relocations: which of them are calls of KCOV's? */
static void read_relocations(const char *elf, uint32_t module, const Elf64_Shdr *rela)
{
	const Elf64_Shdr *target = section(elf, rela->sh_info);
	const Elf64_Shdr *symtab = section(elf, rela->sh_link);
	const Elf64_Shdr *strings = section(elf, symtab->sh_link);
	const Elf64_Sym *syms = (const void *)(elf + symtab->sh_offset);
	const Elf64_Rela *r = (const void *)(elf + rela->sh_offset);
	const Elf64_Ehdr *eh = (const void *)elf;
	const char *name = string(elf, section(elf, eh->e_shstrndx), target->sh_name);
	unsigned long address;
	uint32_t i;

	if (!(target->sh_flags & SHF_EXECINSTR))
		return;
	address = section_address(modules[module].name, name);
	if (!address)
		return;
	read_functions(elf, module, rela->sh_info, address);
	for (i = 0; i < rela->sh_size / sizeof(*r); i++) {
		const Elf64_Sym *sym = &syms[ELF64_R_SYM(r[i].r_info)];
		struct place *p = &places[nplaces];

		if (strcmp(string(elf, strings, sym->st_name), "__sanitizer_cov_trace_pc") ||
		    nplaces == MAX_PLACES)
			continue;
		/* KCOV tells where the call returns to. */
		p->pc = address + r[i].r_offset + 4;
		p->module = module;
		p->function = function_of(p->pc);
		if (p->function == MAX_FUNCTIONS)
			continue;
		functions[p->function].places = true;
		nplaces++;
	}
}

static void read_module(const char *tree, uint32_t module)
{
	const Elf64_Ehdr *eh;
	struct utsname uts;
	char path[512];
	struct stat st;
	uint32_t i;
	char *elf;
	int fd;

	uname(&uts);
	snprintf(path, sizeof(path), "%s/build/modules-%s/kernel/%s/%s.ko", tree, uts.release,
		 modules[module].folder, modules[module].name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return;
	elf = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (elf == MAP_FAILED)
		return;
	eh = (const void *)elf;
	for (i = 0; i < eh->e_shnum; i++)
		if (section(elf, i)->sh_type == SHT_RELA)
			read_relocations(elf, module, section(elf, i));
	munmap(elf, st.st_size);
}

static int by_pc(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->pc < y->pc ? -1 : x->pc > y->pc;
}

bool cov_open(const char *tree)
{
	uint32_t i;

	for (i = 0; i < PROG_THREADS; i++) {
		fds[i] = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
		if (fds[i] < 0 || ioctl(fds[i], KCOV_INIT_TRACE, KCOV_WORDS))
			return false;
		areas[i] = mmap(NULL, KCOV_WORDS * sizeof(long), PROT_READ | PROT_WRITE,
				MAP_SHARED, fds[i], 0);
		if (areas[i] == MAP_FAILED)
			return false;
	}
	for (i = 0; i < ARRAY_SIZE(modules); i++)
		read_module(tree, i);
	qsort(places, nplaces, sizeof(places[0]), by_pc);
	on = nplaces;
	return on;
}

/* ---- what was reached */

void cov_begin(uint32_t thread)
{
	if (!on)
		return;
	__atomic_store_n(areas[thread], 0, __ATOMIC_RELAXED);
	ioctl(fds[thread], KCOV_ENABLE, KCOV_TRACE_PC);
}

uint32_t cov_collect(uint32_t **list, uint32_t *n)
{
	static uint32_t found[MAX_PLACES];
	static uint8_t mine[MAX_PLACES];
	uint32_t fresh = 0, t, i;

	*list = found;
	*n = 0;
	for (t = 0; t < PROG_THREADS && on; t++) {
		unsigned long words = areas[t][0], w;

		for (w = 1; w <= words && w < KCOV_WORDS; w++) {
			struct place key = { .pc = areas[t][w] }, *p;

			p = bsearch(&key, places, nplaces, sizeof(key), by_pc);
			if (!p || mine[p - places])
				continue;
			mine[p - places] = 1;
			found[(*n)++] = p - places;
			fresh += !seen[p - places];
			seen[p - places] = 1;
		}
		areas[t][0] = 0;
	}
	for (i = 0; i < *n; i++)
		mine[found[i]] = 0;
	nreached += fresh;
	return fresh;
}

uint32_t cov_places(void)
{
	return nplaces;
}

uint32_t cov_reached(void)
{
	return nreached;
}

/* Parts that the compiler has split off are no functions of their own. */
static bool counts(const struct function *f)
{
	return f->places && !strstr(f->name, ".cold");
}

static void report_module(uint32_t module)
{
	static bool reached[MAX_FUNCTIONS];
	uint32_t i, all = 0, got = 0, fall = 0, fgot = 0;

	for (i = 0; i < nplaces; i++) {
		if (places[i].module != module)
			continue;
		all++;
		got += seen[i];
		reached[places[i].function] |= seen[i];
	}
	for (i = 0; i < nfunctions; i++) {
		if (functions[i].module != module || !counts(&functions[i]))
			continue;
		fall++;
		fgot += reached[i];
	}
	if (all)
		ksft_print_msg("coverage: %s: %u of %u places, %u of %u functions\n",
			       modules[module].name, got, all, fgot, fall);
	for (i = 0; i < nfunctions; i++)
		if (functions[i].module == module && counts(&functions[i]) && !reached[i])
			ksft_print_msg("not reached: %s: %s\n", modules[module].name,
				       functions[i].name);
}

void cov_report(void)
{
	uint32_t i;

	for (i = 0; on && i < ARRAY_SIZE(modules); i++)
		report_module(i);
}
