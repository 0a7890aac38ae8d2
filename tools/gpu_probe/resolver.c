/* Whether cuGetProcAddress hands out the addresses that the loader knows: the hook recognizes functions by them. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

#define MOST_NAMES 4096
#define MOST_SHOWN 48

typedef CUresult (*first_resolver)(const char *, void **, int, cuuint64_t);

static struct {
    char *known[MOST_NAMES]; /* the table's names */
    char *asked[MOST_NAMES]; /* those and their stems, each once */
    void *exports[MOST_NAMES]; /* addresses of known names */
    int known_count, asked_count, export_count;
} names;

static int is_among(char *const *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0)
            return 1;
    return 0;
}

static void add_asked(const char *name)
{
    if (names.asked_count < MOST_NAMES && !is_among(names.asked, names.asked_count, name))
        names.asked[names.asked_count++] = strdup(name);
}

/* Asks for cuFoo_v2_ptsz as itself, as cuFoo_v2 and as cuFoo. */
static void add_name(char *name)
{
    names.known[names.known_count++] = strdup(name);
    void *address = dlsym(probe_driver, name);
    if (address)
        names.exports[names.export_count++] = address;
    for (;;) {
        add_asked(name);
        char *suffix = strrchr(name, '_');
        if (!suffix || (strncmp(suffix, "_v", 2) != 0 && strncmp(suffix, "_pt", 3) != 0))
            return;
        *suffix = '\0';
    }
}

static int read_names(const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    while (names.known_count < MOST_NAMES && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line)
            add_name(line);
    }
    fclose(file);
    return 0;
}

static int is_exported(void *address)
{
    for (int i = 0; i < names.export_count; i++)
        if (names.exports[i] == address)
            return 1;
    return 0;
}

/* A JSON list of at most MOST_SHOWN names; `count` goes on counting. */
struct shown {
    char text[MOST_SHOWN * 72];
    int count;
};

static void show(struct shown *shown, const char *name)
{
    size_t length = strlen(shown->text);
    if (shown->count++ < MOST_SHOWN)
        snprintf(shown->text + length, sizeof shown->text - length, "%s\"%s\"", length ? ", " : "", name);
}

/* Asks each name by both resolvers, with every flag and several versions. */
static void ask_all(const char *when)
{
    first_resolver first = (first_resolver)dlsym(probe_driver, "cuGetProcAddress");
    int driver = 0;
    long answers = 0;
    struct shown foreign = {"", 0};
    CU(cuDriverGetVersion)(&driver);
    const int versions[] = {11000, 11030, 12000, 12080, 13000, driver};
    for (int i = 0; i < names.asked_count; i++) {
        int is_foreign = 0;
        for (size_t version = 0; version < sizeof versions / sizeof *versions; version++)
            for (cuuint64_t flags = 0; flags < 3; flags++) {
                void *found[2] = {NULL, NULL};
                CUdriverProcAddressQueryResult status;
                if (versions[version] > driver)
                    continue;
                CU(cuGetProcAddress)(names.asked[i], &found[0], versions[version], flags, &status);
                if (first)
                    first(names.asked[i], &found[1], versions[version], flags);
                for (int which = 0; which < 2; which++) {
                    answers += found[which] != NULL;
                    is_foreign |= found[which] && !is_exported(found[which]);
                }
            }
        if (is_foreign)
            show(&foreign, names.asked[i]);
    }
    probe_say("resolver",
              "\"when\": \"%s\", \"driver_version\": %d, \"names\": %d, \"answers\": %ld, \"not_exported\": %d, "
              "\"not_exported_names\": [%s]",
              when, driver, names.asked_count, answers, foreign.count, foreign.text);
}

static uint32_t count_symbols(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], last = 0;
    const uint32_t *heads = hash + 4 + 2 * hash[2], *chains = heads + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = heads[i] > last ? heads[i] : last;
    if (last < first)
        return first;
    while (!(chains[last - first] & 1))
        last++;
    return last + 1;
}

/* Functions named cu… that the library exports and the table does not have. */
static void compare_exports(void)
{
    struct link_map *map;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    uint32_t count = 0;
    struct shown unknown = {"", 0};
    int functions = 0;
    if (dlinfo(probe_driver, RTLD_DI_LINKMAP, &map) != 0)
        return;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *place = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            symbols = place;
        else if (entry->d_tag == DT_STRTAB)
            strings = place;
        else if (entry->d_tag == DT_GNU_HASH)
            count = count_symbols(place);
        else if (entry->d_tag == DT_HASH && !count)
            count = ((const uint32_t *)place)[1];
    }
    for (uint32_t i = 0; symbols && strings && i < count; i++) {
        const char *name = strings + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF || (symbols[i].st_info & 15) != STT_FUNC || strncmp(name, "cu", 2) != 0)
            continue;
        functions++;
        if (!is_among(names.known, names.known_count, name))
            show(&unknown, name);
    }
    probe_say("exports", "\"functions\": %d, \"not_in_the_table\": %d, \"not_in_the_table_names\": [%s]", functions,
              unknown.count, unknown.text);
}

void probe_resolver(const char *names_file)
{
    if (read_names(names_file) != 0) {
        probe_say("resolver", "\"error\": \"the file of names cannot be read\"");
        exit(1);
    }
    ask_all("before cuInit");
    compare_exports();
    probe_start();
    ask_all("with a context");
}
