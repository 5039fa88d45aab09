package io.hayloft.pfs.io;

import java.io.IOException;

/** The mount did not answer within {@code fs.pfs.timeout}. The call may still take effect. */
public final class MountHungException extends IOException {
  private static final long serialVersionUID = 1;

  MountHungException(String message) {
    super(message);
  }
}
