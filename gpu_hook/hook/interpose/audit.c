/* libaliquot-audit.so, for LD_AUDIT. A caller that asks the loader for a library of the driver,
 * by whatever name or path, gets the shim of this library's folder. The driver's and the shim's
 * own requests pass. This library changes names only: an audit library lives in a link namespace
 * of its own, with its own C library, where no hook could work. Each program that starts in a
 * kernel loads this library, most of them in vain. So it needs no library at all: a second C
 * library would be nine tenths of its cost. */
#include "interpose/driver_names.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define OWN_FILE "libaliquot-audit.so"

enum requester { ANYBODY, DRIVER };

static struct {
    char folder[PATH_MAX]; /* with its last slash; empty: nothing is redirected */
    char target[PATH_MAX]; /* guarded by the loader's lock */
} state;

/* There is no errno that a call by the C library's own wrappers could set. */
static long is_accessible(const char *path)
{
#if defined(__x86_64__)
    register long result __asm__("rax") = SYS_faccessat;
    __asm__ volatile("syscall"
                     : "+r"(result)
                     : "D"((long)AT_FDCWD), "S"(path), "d"((long)R_OK)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long result __asm__("x0") = AT_FDCWD;
    register const char *asked __asm__("x1") = path;
    register long mode __asm__("x2") = R_OK;
    register long number __asm__("x8") = SYS_faccessat;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(asked), "r"(mode), "r"(number) : "memory");
#endif
    return result == 0;
}

/* False: it does not fit. */
static bool append(char text[PATH_MAX], size_t *used, const char *part, size_t length)
{
    if (length >= PATH_MAX - *used)
        return false;
    for (size_t i = 0; i < length; i++)
        text[(*used)++] = part[i];
    text[*used] = '\0';
    return true;
}

/* Older loaders leave some addresses of an object's tables relative to it. */
static const void *address_in(const struct link_map *map, ElfW(Addr) value)
{
    return (const void *)(value < map->l_addr ? map->l_addr + value : value);
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool is_same(const char *left, const char *right)
{
    const char *rest = text_after(left, right);
    return rest && !*rest;
}

/* Return the address of the object's definition of that name; NULL: it has none, or keeps no
 * table of the usual form. */
static const void *find_definition(const struct link_map *map, const char *name)
{
    const uint32_t *table = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_GNU_HASH)
            table = address_in(map, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_SYMTAB)
            symbols = address_in(map, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            names = address_in(map, entry->d_un.d_ptr);
    }
    if (!table || !symbols || !names || !table[0])
        return NULL;
    uint32_t buckets_count = table[0], first = table[1], hash = gnu_hash(name);
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    const uint32_t *chains = buckets + buckets_count;
    uint32_t index = buckets[hash % buckets_count];
    for (; index >= first; index++) {
        uint32_t found = chains[index - first];
        if ((found | 1) == (hash | 1) && symbols[index].st_shndx != SHN_UNDEF &&
            is_same(names + symbols[index].st_name, name))
            return (const void *)(map->l_addr + symbols[index].st_value);
        if (found & 1)
            break;
    }
    return NULL;
}

/* Take our own folder out of the value of LD_AUDIT, as the loader read it. */
static void take_folder(const char *list)
{
    while (*list && !state.folder[0]) {
        const char *end = list, *file = list;
        for (; *end && *end != ':'; end++)
            if (*end == '/')
                file = end + 1;
        const char *rest = text_after(file, OWN_FILE);
        size_t used = 0;
        if (*list == '/' && rest == end)
            append(state.folder, &used, list, (size_t)(file - list));
        list = *end ? end + 1 : end;
    }
}

/* Find the environment that the program was started with, through a variable of the loader. The
 * stack holds, in the order of the kernel: the count of arguments, the arguments, NULL, the
 * environment, NULL. Read it at the start, since programs that set their title write over it. */
static void look_for_folder(const struct link_map *map)
{
    char *const *const *stack = find_definition(map, "__libc_stack_end");
    if (!stack || !*stack)
        return;
    char *const *cursor = *stack + 1;
    while (*cursor)
        cursor++;
    for (cursor++; *cursor; cursor++) {
        const char *list = text_after(*cursor, "LD_AUDIT=");
        if (list)
            take_folder(list);
    }
}

/* Called by the loader, once, before anything is mapped. */
EXPORT unsigned int la_version(unsigned int version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

/* Called by the loader for each object, first for the program and for itself. 0: this library
 * does not audit its symbols, so that calls cost nothing. The shim's link name is no driver: the
 * libraries that it needs must be the shim. */
EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    if (!state.folder[0])
        look_for_folder(map);
    bool is_link_name = is_same(file_of_path(map->l_name), CUDA_FILE);
    *cookie = find_shim_file(map->l_name) && !is_link_name ? DRIVER : ANYBODY;
    return 0;
}

/* Called by the loader for each name that it is asked for; the cookie is that of the object that
 * asks. */
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
    const char *file =
        flag == LA_SER_ORIG && *cookie != DRIVER && state.folder[0] ? find_shim_file(name) : NULL;
    size_t used = 0, length = 0;
    if (!file)
        return (char *)name;
    while (state.folder[length])
        length++;
    bool fits = append(state.target, &used, state.folder, length);
    for (length = 0; file[length];)
        length++;
    fits = fits && append(state.target, &used, file, length);
    return fits && is_accessible(state.target) ? state.target : (char *)name;
}
