/* Reads CUDA_VISIBLE_DEVICES. The list ends at its first entry that names no device, or names one
 * twice: as on the real driver, the devices before it stay visible. An entry is an index, or a UUID
 * ("GPU-…") or a prefix of it that fits one device only. */
#include "device/visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void visible_format_uuid(const uint8_t uuid[16], char text[41])
{
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

static int find_by_uuid(const struct machine *machine, const char *entry, size_t length)
{
    int found = -1;
    for (unsigned i = 0; i < machine->device_count; i++) {
        char text[41];
        visible_format_uuid(machine->devices[i].uuid, text);
        if (length > 4 && length <= strlen(text) && strncasecmp(text, entry, length) == 0) {
            if (found >= 0)
                return -1;
            found = (int)i;
        }
    }
    return found;
}

static int find_entry(const struct machine *machine, const char *entry, size_t length)
{
    if (length && isdigit((unsigned char)*entry)) {
        char *end;
        unsigned long index = strtoul(entry, &end, 10);
        return end == entry + length && index < machine->device_count ? (int)index : -1;
    }
    return find_by_uuid(machine, entry, length);
}

int visible_parse(const struct machine *machine, const char *list, unsigned physical[MACHINE_DEVICES])
{
    int count = 0;
    if (list == NULL) {
        for (unsigned i = 0; i < machine->device_count; i++)
            physical[count++] = i;
        return count;
    }
    for (const char *entry = list;; entry++) {
        entry += strspn(entry, " \t");
        size_t length = strcspn(entry, ","), bare = length;
        while (bare && isspace((unsigned char)entry[bare - 1]))
            bare--;
        int device = find_entry(machine, entry, bare);
        if (device < 0)
            return count;
        for (int i = 0; i < count; i++)
            if (physical[i] == (unsigned)device)
                return 0; /* as the real driver: a device named twice leaves none */
        physical[count++] = (unsigned)device;
        entry += length;
        if (*entry == '\0' || count == MACHINE_DEVICES)
            return count;
    }
}
