/* LD_PRELOAD for any program: its wall clock is wrong by the seconds that the first eight bytes of the file CLOCK_SHIFT say now (a signed
 * number), so that a test can move it while the program runs. The monotonic clock stays as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_shift(void) {
    static const volatile int64_t *at;
    const char *path = at ? NULL : getenv("CLOCK_SHIFT");
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *p = mmap(NULL, sizeof *at, PROT_READ, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) at = (const volatile int64_t *)p;
        close(fd);
    }
    return at ? *at : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    const int r = (int)syscall(SYS_clock_gettime, clock, t);
    if (!r && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) t->tv_sec += clock_shift();
    return r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
