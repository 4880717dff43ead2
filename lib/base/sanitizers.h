/* SPDX-License-Identifier: Apache-2.0 */
/* HW_ASAN and HW_TSAN are 1 in a build with the sanitizer and 0 otherwise. gcc defines macros; clang 14 provides
 * __has_feature. */
#ifndef HW_SANITIZERS_H
#define HW_SANITIZERS_H

#ifndef __has_feature
#define HW_HAS_FEATURE(x) 0
#else
#define HW_HAS_FEATURE(x) __has_feature(x)
#endif

#if defined(__SANITIZE_ADDRESS__) || HW_HAS_FEATURE(address_sanitizer)
#define HW_ASAN 1
#else
#define HW_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || HW_HAS_FEATURE(thread_sanitizer)
#define HW_TSAN 1
#else
#define HW_TSAN 0
#endif

#endif
