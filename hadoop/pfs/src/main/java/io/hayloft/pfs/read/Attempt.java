package io.hayloft.pfs.read;

import io.hayloft.pfs.io.MountHungException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;

/**
 * One call to a source, on a thread that may hang in it. An error makes the call itself go on with
 * another copy. A hang is seen by the caller, which gives this attempt up and makes another.
 */
final class Attempt {
  private final Source source;
  private volatile Copy used;
  private volatile boolean givenUp;

  Attempt(Source source) {
    this.source = source;
  }

  private interface Call {
    int on(Copy copy) throws IOException;
  }

  int read(ByteBuffer into, long position) throws IOException {
    return onCopies(copy -> copy.read(into, position));
  }

  int open() throws IOException {
    return onCopies(
        copy -> {
          copy.open();
          return 0;
        });
  }

  private int onCopies(Call call) throws IOException {
    while (!givenUp) {
      Copy copy = source.current();
      used = copy;
      try {
        return call.on(copy);
      } catch (InterruptedIOException e) {
        // The copy is not to blame.
        throw e;
      } catch (IOException e) {
        if (!source.moveOn(copy, e)) {
          throw e;
        }
      }
    }
    throw new IOException("given up");
  }

  /**
   * Gives this attempt up and lets the source go over to another copy than the one that hangs.
   * Throws the error if there is none, or if the call waited for a thread or a buffer all the time.
   */
  void moveOn(MountHungException e) throws IOException {
    givenUp = true;
    Copy hung = used;
    if (hung == null || !source.moveOn(hung, e)) {
      throw e;
    }
  }
}
