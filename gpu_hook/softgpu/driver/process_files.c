/* Opens the file through /proc: the other process must live, be of the same user, and be in this
 * pid namespace or below it. */
#include "driver/process_files.h"

#include <fcntl.h>
#include <stdio.h>

#include "device/log.h"
#include "device/pids.h"
#include "device/slots.h"
#include "driver/driver.h"

int process_file_open(uint64_t joined, int descriptor)
{
    char path[64];
    int slot = slots_find(&driver.attachment, joined);
    int process = slot < 0 ? 0 : pids_of_slot(driver.attachment.machine, slot);
    if (process == 0) {
        log_line("event=exporter_not_seen reason=\"%s\"", slot < 0 ? "it ended" : "it is in another pid namespace");
        return -1;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, descriptor);
    return open(path, O_RDWR | O_CLOEXEC);
}
