/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of newer C libraries that static libraries (libstdc++, libgcc, LLVM) of the build machine use, and
 * functions whose version changed without a change of behaviour. Compiled into portable builds, which run with
 * glibc 2.28. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#pragma GCC visibility push(hidden)

/* glibc 2.32. False: there may be several threads. */
char __libc_single_threaded = 0;

/* glibc 2.33. The numbers wrap around at 4 GiB. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
struct mallinfo2 mallinfo2(void) {
  const struct mallinfo m = mallinfo();
  return (struct mallinfo2){(unsigned)m.arena,    (unsigned)m.ordblks, (unsigned)m.smblks,  (unsigned)m.hblks,
                            (unsigned)m.hblkhd,   (unsigned)m.usmblks, (unsigned)m.fsmblks, (unsigned)m.uordblks,
                            (unsigned)m.fordblks, (unsigned)m.keepcost};
}

/* glibc 2.36 */
uint32_t arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {}
  return number;
}

/* glibc 2.30. These functions wait with the real-time clock instead. */
static int real_time(clockid_t clock, const struct timespec* until, struct timespec* real) {
  struct timespec now;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, real) != 0) return EINVAL;
  real->tv_sec += until->tv_sec - now.tv_sec;
  real->tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real->tv_nsec < 0) --real->tv_sec, real->tv_nsec += 1000000000;
  if (real->tv_nsec >= 1000000000) ++real->tv_sec, real->tv_nsec -= 1000000000;
  return real->tv_sec < 0 ? ETIMEDOUT : 0;
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec real;
  const int wrong = real_time(clock, until, &real);
  return wrong != 0 ? wrong : pthread_cond_timedwait(condition, mutex, &real);
}
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  struct timespec real;
  const int wrong = real_time(clock, until, &real);
  return wrong != 0 ? wrong : pthread_mutex_timedlock(mutex, &real);
}
int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock, const struct timespec* until) {
  struct timespec real;
  const int wrong = real_time(clock, until, &real);
  return wrong != 0 ? wrong : pthread_rwlock_timedwrlock(lock, &real);
}

/* glibc 2.35. Finds the unwinding table of the code at an address. */
struct search {
  uintptr_t address;
  struct dl_find_object* found;
};
static int find(struct dl_phdr_info* info, size_t size, void* given) {
  (void)size;
  struct search* s = given;
  const ElfW(Phdr)* code = NULL;
  const ElfW(Phdr)* table = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* p = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_LOAD && s->address >= begin && s->address - begin < p->p_memsz) code = p;
    if (p->p_type == PT_GNU_EH_FRAME) table = p;
  }
  if (code == NULL) return 0;
  if (table == NULL) return -1;
  memset(s->found, 0, sizeof *s->found);
  s->found->dlfo_map_start = (void*)(info->dlpi_addr + code->p_vaddr);
  s->found->dlfo_map_end = (void*)(info->dlpi_addr + code->p_vaddr + code->p_memsz);
  s->found->dlfo_eh_frame = (void*)(info->dlpi_addr + table->p_vaddr);
  return 1;
}
int _dl_find_object(void* address, struct dl_find_object* found) {
  struct search s = {(uintptr_t)address, found};
  return dl_iterate_phdr(find, &s) == 1 ? 0 : -1;
}

/* glibc 2.29 removed the handling of errors by _LIB_VERSION. The results are the same. */
#define OLDER(name, parameters, arguments)                               \
  __asm__(".symver older_" #name "," #name "@GLIBC_2.2.5");              \
  __attribute__((visibility("default"))) double older_##name parameters; \
  double name parameters { return older_##name arguments; }
OLDER(exp, (double x), (x))
OLDER(exp2, (double x), (x))
OLDER(log, (double x), (x))
OLDER(log2, (double x), (x))
OLDER(pow, (double x, double y), (x, y))

#pragma GCC visibility pop
