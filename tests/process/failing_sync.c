/* Makes the calls that sync files fail with EIO while the file named by FAIL_SYNC_WHILE exists: for tests of a disk that fails. With FAIL_SYNC_OF only
 * the syncs of the file or directory of that path fail.
 *
 *   cc -shared -fPIC -o failing_sync.so failing_sync.c
 *   FAIL_SYNC_WHILE=/tmp/fail LD_PRELOAD=./failing_sync.so millstream queue serve
 *
 * A program that makes its system calls itself does not call the C library's fsync. So a filter of the kernel (seccomp) stops these calls, and a
 * thread that is made before the program begins says for each whether it fails or is made. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int listener = -1;
static pthread_barrier_t installed;

static int concerns(const struct seccomp_notif *call) {
    char *only = getenv("FAIL_SYNC_OF"), link[64], target[4096];
    if (only == NULL) return 1;
    if (call->data.nr == SYS_msync) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", (int)call->data.args[0]);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) return 0;
    target[length] = 0;
    return strcmp(target, only) == 0;
}

static void *answer(void *path) {
    pthread_barrier_wait(&installed);
    for (;;) {
        struct seccomp_notif call;
        memset(&call, 0, sizeof call);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            return NULL;
        }
        struct seccomp_notif_resp reply = {.id = call.id};
        if (access(path, F_OK) == 0 && concerns(&call))
            reply.error = -EIO;
        else
            reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        /* Fails when the thread that called was killed meanwhile. */
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
    }
}

static void end(const char *what) {
    perror(what);
    _exit(70);
}

__attribute__((constructor)) static void install(void) {
    char *path = getenv("FAIL_SYNC_WHILE");
    if (path == NULL) return;
    static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sync_file_range, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    pthread_t thread;
    pthread_barrier_init(&installed, NULL, 2);
    if (pthread_create(&thread, NULL, answer, path) != 0) end("pthread_create");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) end("no_new_privs");
    listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0) end("seccomp");
    pthread_barrier_wait(&installed);
}
