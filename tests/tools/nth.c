/* LD_PRELOAD for any program: its n-th allocation fails, counted over all threads and the C library's own.
 *
 *   NTH_FAIL=N     the N-th fails; NTH_MANY=1: and all after it
 *   NTH_COUNT=FILE eight bytes, the number of allocations so far, which a test reads when the program is gone, however it went
 *
 * Children of the program are left alone. Linux with glibc, whose own functions call these too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

static uint64_t nth_own, *nth_count = &nth_own;
static long nth_fail, nth_pid;
static int nth_many, nth_ready;

static void nth_begin(void) {
    const char *at = getenv("NTH_FAIL"), *path = getenv("NTH_COUNT");
    nth_ready = 1;
    nth_pid = getpid();
    nth_fail = at ? strtol(at, NULL, 10) : 0;
    nth_many = getenv("NTH_MANY") != NULL;
    const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *nth_count)) return;
    void *p = (void *)syscall(SYS_mmap, NULL, sizeof *nth_count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    if (p != MAP_FAILED) nth_count = p;
    close(fd);
    unsetenv("LD_PRELOAD");
}

static int nth_fails(void) {
    if (!nth_ready) nth_begin();
    if (nth_pid != getpid()) return 0;
    const long n = (long)__atomic_add_fetch(nth_count, 1, __ATOMIC_RELAXED);
    if (!nth_fail || n < nth_fail || (n > nth_fail && !nth_many)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return nth_fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t count, size_t size) { return nth_fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *p, size_t n) { return nth_fails() ? NULL : __libc_realloc(p, n); }
void *memalign(size_t alignment, size_t n) { return nth_fails() ? NULL : __libc_memalign(alignment, n); }
void *aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }

int posix_memalign(void **out, size_t alignment, size_t n) {
    if (nth_fails()) return ENOMEM;
    *out = __libc_memalign(alignment, n);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    return nth_fails() ? MAP_FAILED : (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
