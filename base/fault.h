/* fault.h - faults on demand, for tests: the n-th allocation, read, write, ... fails.
 *
 * Built in only where OOC_ENABLE_FAULTS is 1 (the test builds); elsewhere every hook is a constant
 * 0. The plan comes from ooc_fault_set() or from the environment, so that whole commands can be
 * tested: OOC_FAULT=alloc:7          the 7th allocation fails (counted from 1) OOC_FAULT=read:3+
 * the 3rd read and all later ones fail with EIO OOC_FAULT=short-read:2     the 2nd read comes up
 * short Sites are counted process-wide, across threads. */
#ifndef OOC_BASE_FAULT_H
#define OOC_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    OOC_FAULT_ALLOC,       /* allocation fails: ENOMEM                     name: alloc */
    OOC_FAULT_READ,        /* read fails: EIO                              name: read */
    OOC_FAULT_SHORT_READ,  /* read gives fewer bytes than asked            name: short-read */
    OOC_FAULT_READ_EINTR,  /* read is interrupted: EINTR                   name: eintr */
    OOC_FAULT_WRITE,       /* write fails: ENOSPC                          name: write */
    OOC_FAULT_SHORT_WRITE, /* write takes fewer bytes than given           name: short-write */
    OOC_FAULT_SYNC,        /* fsync fails: EIO                             name: sync */
    OOC_FAULT_RENAME,      /* rename fails: EIO                            name: rename */
    OOC_FAULT_OPEN,        /* open fails: EMFILE                           name: open */
    OOC_FAULT_URING,       /* io_uring is refused: EPERM                   name: uring */
    OOC_FAULT_TMPFILE,     /* unnamed files are refused: EOPNOTSUPP       name: tmpfile */
    OOC_FAULT_DEVICE,      /* a device call fails                          name: device */
    OOC_FAULT_N
} ooc_fault_site;

#if OOC_ENABLE_FAULTS
/* Count one visit of `site`; true if this one must fail. */
bool ooc_fault_hit(ooc_fault_site site);
/* Fail visit number `nth` (from 1; 0: none), and all later ones if `forever`. Resets the count. */
void ooc_fault_set(ooc_fault_site site, uint64_t nth, bool forever);
/* Visits of `site` since the last set (or since the start). */
uint64_t ooc_fault_visits(ooc_fault_site site);
#else
static inline bool ooc_fault_hit(ooc_fault_site site)
{
    (void)site;
    return false;
}
#endif

#ifdef __cplusplus
}
#endif
#endif
