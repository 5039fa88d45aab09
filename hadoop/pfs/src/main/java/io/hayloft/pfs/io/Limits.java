package io.hayloft.pfs.io;

/** Numbers that a configuration or an attribute chooses. */
public final class Limits {
  private Limits() {}

  /** The value, if it is within the limits; {@code what} names it in the error. */
  public static long checked(String what, long value, long least, long most) {
    if (value < least || value > most) {
      throw new IllegalArgumentException(
          what + " is " + value + " and must be from " + least + " to " + most);
    }
    return value;
  }
}
