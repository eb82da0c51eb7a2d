/* A slow disk for one server: for LD_PRELOAD, see `causes.py`.
 *
 * Each sync of a file takes so many microseconds longer, a signed 64-bit number of this machine's byte order at the
 * start of the file that SLOW_DISK_FILE names. The file is mapped: a number that is written to it holds for the syncs
 * that are waited for, too.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STEP_MICROS 10000

static _Atomic int64_t none;
static _Atomic int64_t *longer_micros = &none;

/* A server whose disk cannot be made slow must not pass for one whose disk was: it does not start. */
static void give_up(const char *what)
{
    perror(what);
    _exit(2);
}

__attribute__((constructor)) static void map_the_file(void)
{
    const char *path = getenv("SLOW_DISK_FILE");
    if (!path)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        give_up(path);
    void *mapped = mmap(NULL, sizeof *longer_micros, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        give_up(path);
    close(file);
    longer_micros = mapped;
}

static void wait_for_the_disk(void)
{
    for (int64_t waited = 0; waited < *longer_micros; waited += STEP_MICROS)
        usleep(STEP_MICROS);
}

int fsync(int file)
{
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file)
{
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, file);
}
