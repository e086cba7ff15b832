#include "sim_fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#ifndef SIM_ASAN
#define SIM_ASAN 0
#endif

#if SIM_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace
{
const size_t stack_bytes = 128 * 1024;
const size_t guard_bytes = 4096;
/* Tops of stacks at one offset of their pages would all meet in the same few sets of the cache. */
const size_t colour_step = 576, n_colours = 57;
} // namespace

struct sim_fiber {
    void *sp;   /* where the fiber stopped */
    void *back; /* where its scheduler stopped */
    char *stack;
    size_t top; /* bytes from `stack` to where it begins */
    void (*fn)(void *);
    void *arg;
    void *fake, *back_fake; /* the address sanitizer's own stacks */
    const void *back_stack;
    size_t back_bytes;
#if !defined(__x86_64__)
    ucontext_t ctx, back_ctx;
#endif
};

#if defined(__x86_64__)
/* Saves the registers that a callee must keep on the stack, leaves the stack pointer in *save, and
 * goes on where `load` was saved: a hundred times cheaper than swapcontext(), which makes a system
 * call for the signal mask. */
extern "C" void sim_stack_switch(void **save, void *load);
asm(".text\n"
    ".p2align 4\n"
    ".type sim_stack_switch,@function\n"
    "sim_stack_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size sim_stack_switch,.-sim_stack_switch\n");
#endif

static sim_fiber *entering; /* the fiber that runs `fiber_main` for the first time */

__attribute__((no_sanitize("address"))) static void fiber_main(void)
{
    sim_fiber *f = entering;

#if SIM_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &f->back_stack, &f->back_bytes);
#endif
    f->fn(f->arg);
    abort(); /* fn ends with sim_fiber_exit */
}

sim_fiber *sim_fiber_new(void)
{
    static size_t n_fibers;
    sim_fiber *f = new sim_fiber();
    void *p = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED || mprotect(p, guard_bytes, PROT_NONE)) {
        fprintf(stderr, "cudasim: no memory for a fiber's stack\n");
        abort();
    }
    f->stack = static_cast<char *>(p) + guard_bytes;
    f->top = stack_bytes - n_fibers++ % n_colours * colour_step;
    return f;
}

void sim_fiber_start(sim_fiber *f, void (*fn)(void *arg), void *arg)
{
    f->fn = fn;
    f->arg = arg;
    f->fake = nullptr;
#if defined(__x86_64__)
    void **top = reinterpret_cast<void **>(f->stack + f->top);

    *--top = nullptr; /* as if called: the stack pointer is 8 off a multiple of 16 on entry */
    *--top = reinterpret_cast<void *>(&fiber_main);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->sp = top;
#else
    getcontext(&f->ctx);
    f->ctx.uc_stack.ss_sp = f->stack;
    f->ctx.uc_stack.ss_size = stack_bytes;
    f->ctx.uc_link = nullptr;
    makecontext(&f->ctx, fiber_main, 0);
#endif
}

static void jump(sim_fiber *f, bool into)
{
#if defined(__x86_64__)
    if (into)
        sim_stack_switch(&f->back, f->sp);
    else
        sim_stack_switch(&f->sp, f->back);
#else
    if (into)
        swapcontext(&f->back_ctx, &f->ctx);
    else
        swapcontext(&f->ctx, &f->back_ctx);
#endif
}

void sim_fiber_enter(sim_fiber *f)
{
    entering = f;
#if SIM_ASAN
    __sanitizer_start_switch_fiber(&f->back_fake, f->stack, stack_bytes);
#endif
    jump(f, true);
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(f->back_fake, nullptr, nullptr);
#endif
}

void sim_fiber_yield(sim_fiber *self)
{
#if SIM_ASAN
    __sanitizer_start_switch_fiber(&self->fake, self->back_stack, self->back_bytes);
#endif
    jump(self, false);
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(self->fake, &self->back_stack, &self->back_bytes);
#endif
}

__attribute__((no_sanitize("address"))) void sim_fiber_exit(sim_fiber *self)
{
#if SIM_ASAN
    __sanitizer_start_switch_fiber(nullptr, self->back_stack, self->back_bytes);
#endif
    jump(self, false);
    abort();
}
