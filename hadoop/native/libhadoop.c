/*
 * A libhadoop.so that Hadoop 3.5.0 loads, in front of the one of 3.3.5 that Maven Central has.
 *
 * scripts/fetch-libhadoop links this against that one, libhadoop.so.1.0.0, in which all other
 * functions are found. Two things have changed since:
 *
 * - 3.5.0 initialises NativeIO.POSIX and NativeIO.Windows each by a function of its own. Before,
 *   there was one for both, which is called here, once.
 * - that one reads the Java field workaroundNonThreadSafePasswdCalls, which is gone. It is told
 *   that the field is false: getpwuid_r and its like work as they should.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <jni.h>
#include <stdatomic.h>
#include <string.h>

#define OLD_INIT "Java_org_apache_hadoop_io_nativeio_NativeIO_initNative"
#define GONE "workaroundNonThreadSafePasswdCalls"

typedef void (*init_function)(JNIEnv *, jclass, jboolean);

/* The functions of the virtual machine, and those functions with two of our own among them. */
static const struct JNINativeInterface_ *machine;
static struct JNINativeInterface_ changed;

/* Its address stands for the field that is gone. */
static char gone;

static jfieldID JNICALL get_field(JNIEnv *env, jclass of, const char *name, const char *type) {
    if (strcmp(name, GONE) == 0) {
        return (jfieldID)&gone;
    }
    return machine->GetStaticFieldID(env, of, name, type);
}

static jboolean JNICALL get_boolean(JNIEnv *env, jclass of, jfieldID field) {
    if (field == (jfieldID)&gone) {
        return JNI_FALSE;
    }
    return machine->GetStaticBooleanField(env, of, field);
}

static void initialise(JNIEnv *env, jboolean logs) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&done)) {
        return;
    }
    init_function old = (init_function)dlsym(RTLD_NEXT, OLD_INIT);
    if (old == NULL) {
        jclass error = (*env)->FindClass(env, "java/lang/UnsatisfiedLinkError");
        (*env)->ThrowNew(env, error, "libhadoop.so.1.0.0 lacks " OLD_INIT);
        return;
    }
    jclass native_io = (*env)->FindClass(env, "org/apache/hadoop/io/nativeio/NativeIO");
    if (native_io == NULL) {
        return; /* An exception is pending. */
    }
    machine = *env;
    changed = *machine;
    changed.GetStaticFieldID = get_field;
    changed.GetStaticBooleanField = get_boolean;
    *(const struct JNINativeInterface_ **)env = &changed;
    old(env, native_io, logs);
    *(const struct JNINativeInterface_ **)env = machine;
}

JNIEXPORT void JNICALL Java_org_apache_hadoop_io_nativeio_NativeIO_initNative(
    JNIEnv *env, jclass of, jboolean logs) {
    (void)of;
    initialise(env, logs);
}

JNIEXPORT void JNICALL Java_org_apache_hadoop_io_nativeio_NativeIO_00024POSIX_initNativePosix(
    JNIEnv *env, jclass of, jboolean logs) {
    (void)of;
    initialise(env, logs);
}
