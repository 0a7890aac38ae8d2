/* query_fuzz DRIVER COUNT SEED: asks the driver and the hook in front of it the same questions, and compares. Reads
 * the table from stdin: a line "name 1" for each function that the hook stands before, "name 0" for every other. Equal
 * must be codes, statuses and pointers, but for functions that the hook stands before: there its own one of
 * exactly the name that the driver's has. Prints the differences, then how many answers were pointers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 2048
#define UNTOUCHED ((void *)0x5eed)

typedef int (*query_v1)(const char *name, void **function, int version, uint64_t flags);
typedef int (*query_v2)(const char *name, void **function, int version, uint64_t flags, int *status);

struct row {
    char name[96];
    int is_ours;
    void *real, *hook;
};

static struct row rows[ROWS];
static int row_count, differences;
static uint64_t state;

static unsigned next(unsigned below) /* xorshift64 */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 11) % below);
}

static void read_table(void *real, void *hook)
{
    while (row_count < ROWS && scanf("%95s %d", rows[row_count].name, &rows[row_count].is_ours) == 2) {
        struct row *row = &rows[row_count++];
        row->real = dlsym(real, row->name);
        row->hook = dlsym(hook, row->name);
    }
}

/* Return the function that the hook is to hand out where the driver hands out `real` for a query
 * of that name. */
static void *want(const char *asked, void *real)
{
    size_t length = strlen(asked);
    for (int i = 0; i < row_count; i++)
        if (rows[i].real == real && rows[i].is_ours && strncmp(rows[i].name, asked, length) == 0 &&
            (rows[i].name[length] == '\0' || rows[i].name[length] == '_'))
            return rows[i].hook;
    return real;
}

static void make_name(char *name)
{
    static const char *const suffixes[] = {"_v2", "_v3", "_ptsz", "_ptds", "_v2_ptsz"};
    strcpy(name, rows[next((unsigned)row_count)].name);
    char *suffix = strstr(name, "_");
    unsigned kind = next(16);
    if (kind < 11 && suffix) /* mostly as programs ask: without version and stream */
        *suffix = '\0';
    else if (kind == 13)
        strcat(name, suffixes[next(5)]);
    else if (kind == 14)
        name[next((unsigned)strlen(name))] = (char)(' ' + next(94));
    else if (kind == 15)
        name[next((unsigned)strlen(name) + 1)] = '\0';
}

static int make_version(void)
{
    static const int versions[] = {-1,    0,     1,     2000,  3020,  4000,  5000,  7000,  8000,  10000, 10010,
                                   11000, 11020, 11030, 11040, 12000, 12010, 12020, 12040, 12080, 13000, 99999};
    return next(8) ? versions[next(sizeof versions / sizeof *versions)] : (int)next(14000) - 10;
}

static void differ(const char *name, int version, uint64_t flags, const char *what)
{
    if (differences++ < 20)
        printf("%s version %d flags %llu: %s\n", name, version, (unsigned long long)flags, what);
}

int main(int count, char **arguments)
{
    void *hook = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* first: the driver would answer to that name */
    void *real = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!real || !hook || real == hook)
        return puts("no two libraries to compare"), 2;
    read_table(real, hook);
    query_v1 real_v1 = (query_v1)dlsym(real, "cuGetProcAddress"), hook_v1 = (query_v1)dlsym(hook, "cuGetProcAddress");
    query_v2 real_v2 = (query_v2)dlsym(real, "cuGetProcAddress_v2");
    query_v2 hook_v2 = (query_v2)dlsym(hook, "cuGetProcAddress_v2");
    long asked = atol(arguments[2]), pointers = 0;
    state = strtoull(arguments[3], NULL, 10) * 2654435761u + 88172645463325252u;
    for (long i = 0; i < asked; i++) {
        char name[128];
        make_name(name);
        int version = make_version(), real_status = -7, hook_status = -7;
        uint64_t flags = next(16) ? next(4) : next(9);
        void *a = UNTOUCHED, *b = UNTOUCHED;
        int is_second = next(2), with_status = next(4) != 0;
        int x = is_second ? real_v2(name, &a, version, flags, with_status ? &real_status : NULL)
                          : real_v1(name, &a, version, flags);
        int y = is_second ? hook_v2(name, &b, version, flags, with_status ? &hook_status : NULL)
                          : hook_v1(name, &b, version, flags);
        if (x != y || real_status != hook_status)
            differ(name, version, flags, "another code or status");
        else if (b != (x == 0 && a != UNTOUCHED && a ? want(name, a) : a))
            differ(name, version, flags, "another pointer");
        pointers += x == 0 && a != UNTOUCHED && a;
    }
    printf("%d differences, %ld pointers\n", differences, pointers);
    return differences != 0;
}
