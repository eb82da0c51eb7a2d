/* A wall clock of its own for one server: for LD_PRELOAD, see `clocks`.
 *
 * What the wall clock shows is moved by a number of milliseconds, a signed 64-bit number of this machine's byte order
 * at the start of the file that WALL_CLOCK_FILE names. The file is mapped: whoever writes to it moves the clock of a
 * running server. All other clocks pass through. What waits until a time of the wall clock
 * (pthread_cond_timedwait, sem_timedwait, futexes) is not moved: the kernel's clock is as it was.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOS 1000000000LL

static _Atomic int64_t none;
static _Atomic int64_t *ahead_ms = &none;

/* A server whose clock cannot be moved must not pass for one whose clock was: it does not start. */
static void give_up(const char *what)
{
    perror(what);
    _exit(2);
}

__attribute__((constructor)) static void map_the_file(void)
{
    const char *path = getenv("WALL_CLOCK_FILE");
    if (!path)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        give_up(path);
    void *mapped = mmap(NULL, sizeof *ahead_ms, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        give_up(path);
    close(file);
    ahead_ms = mapped;
}

/* By the system call: looking up libc's function may allocate, and an allocator may ask for the time. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return (int)failed;
    int64_t ms = *ahead_ms;
    int64_t nanos = time->tv_nsec + ms % 1000 * 1000000;
    time->tv_sec += ms / 1000 + (nanos >= NANOS) - (nanos < 0);
    time->tv_nsec = nanos + (nanos < 0) * NANOS - (nanos >= NANOS) * NANOS;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}
