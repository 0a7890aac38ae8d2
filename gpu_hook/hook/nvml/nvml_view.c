#include "nvml/nvml_view.h"

#include "base/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Reads "GPU-2b7e1516-28ae-…". False for anything else, such as a MIG device. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
    if (text[0] != 'G' || text[1] != 'P' || text[2] != 'U' || text[3] != '-')
        return false;
    int digits = 0;
    for (const char *cursor = text + 4; *cursor; cursor++) {
        if (*cursor == '-')
            continue;
        if (!isxdigit((unsigned char)*cursor) || digits == 32)
            return false;
        int value = isdigit((unsigned char)*cursor) ? *cursor - '0'
                                                    : tolower((unsigned char)*cursor) - 'a' + 10;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | value : value);
        digits++;
    }
    return digits == 32;
}

static bool read_uuid(nvmlDevice_t device, uint8_t uuid[16])
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    return nvml_driver()->nvmlDeviceGetUUID(device, text, sizeof text) == NVML_SUCCESS &&
           parse_uuid(text, uuid);
}

static bool find_device(const uint8_t uuid[16], nvmlDevice_t *device)
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE], *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    return nvml_driver()->nvmlDeviceGetHandleByUUID(text, device) == NVML_SUCCESS;
}

nvmlDevice_t nvml_present(nvmlDevice_t device)
{
    uint8_t first[16], now[16], asked[16];
    const char *granted = settings()->visible_devices; /* at the kernel's start; several: never moved */
    nvmlDevice_t found;
    bool is_moved = granted && parse_uuid(granted, first) && observer_only_device(now) &&
                    memcmp(first, now, sizeof now) != 0;
    bool is_first = is_moved && read_uuid(device, asked) && memcmp(asked, first, sizeof first) == 0;
    return is_first && find_device(now, &found) ? found : device;
}

bool nvml_view(nvmlDevice_t device, struct observer_view *view)
{
    uint8_t uuid[16];
    return read_uuid(device, uuid) && observer_view(uuid, view);
}
