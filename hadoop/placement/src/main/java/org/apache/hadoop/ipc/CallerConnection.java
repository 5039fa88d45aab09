package org.apache.hadoop.ipc;

/**
 * Tells whether the connection of the client that made the present call is still open later on.
 *
 * <p>Stands in Hadoop's package because {@code Server.Call.isOpen} is closed to others. It keeps the call
 * (request and response, a few KiB) and with it the connection's object, not the connection open.
 */
public final class CallerConnection {
  private final Server.Call call;

  private CallerConnection(Server.Call call) {
    this.call = call;
  }

  /**
   * What the running Hadoop does not have of the closed methods that this class calls.
   *
   * @return null if nothing is missing
   */
  public static String missing() {
    try {
      Server.class.getMethod("getCurCall");
      Server.Call.class.getDeclaredMethod("isOpen");
      return null;
    } catch (ReflectiveOperationException | LinkageError e) {
      return e.toString();
    }
  }

  /** The connection of the call that this thread serves; null if it serves none. */
  public static CallerConnection current() {
    Server.Call call = Server.getCurCall().get();
    return call == null ? null : new CallerConnection(call);
  }

  /** False once the client or the server has closed the connection. */
  public boolean isOpen() {
    return call.isOpen();
  }
}
