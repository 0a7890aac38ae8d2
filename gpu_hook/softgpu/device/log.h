/* Writes one line per event to the file that ALIQUOT_SOFTGPU_LOG names ("-" or "stderr": stderr).
 * Never writes to stdout, which belongs to the program. */
#ifndef SOFTGPU_LOG_H
#define SOFTGPU_LOG_H

void log_open(const char *destination);
int log_is_on(void);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For a failed start: in the log, or on stderr when there is no log. */
void log_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
