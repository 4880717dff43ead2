/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of glibc 2.30 and 2.32 and of libstdc++ 11 that inline functions of libstdc++ 12 use. A build that must run
 * with older versions (the Python wheel) includes them. They are compiled only with a glibc before 2.32. */
#include <cerrno>
#include <ctime>
#include <dlfcn.h>
#include <new>
#include <pthread.h>

/* States that the process may have several threads, so that reference counts are atomic. */
extern "C" char __libc_single_threaded;
char __libc_single_threaded = 0;

namespace std
{
void __throw_bad_array_new_length()
{
    throw bad_array_new_length();
}
} // namespace std

/* Calls glibc's own function if the process has it (since 2.30). Otherwise waits on the wall clock, as older versions
 * do. If the wall clock is set back in the meantime, a timed wait of std::condition_variable takes longer. */
extern "C" int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                                      const struct timespec *until)
{
    using wait_fn = int (*)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    static const auto own = reinterpret_cast<wait_fn>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
    if (own)
        return own(cond, mutex, clock, until);
    constexpr long second = 1000000000;
    struct timespec now, wall;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0)
        return EINVAL;
    wall.tv_sec += until->tv_sec - now.tv_sec;
    wall.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (wall.tv_nsec < 0)
        wall.tv_sec--, wall.tv_nsec += second;
    else if (wall.tv_nsec >= second)
        wall.tv_sec++, wall.tv_nsec -= second;
    return pthread_cond_timedwait(cond, mutex, &wall);
}
