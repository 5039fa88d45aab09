package org.apache.hadoop.ipc;

import java.util.function.Supplier;

/**
 * A client process whose calls this thread serves for a while, and whose connection a test may
 * close.
 */
public final class FakeCaller {
  private final byte[] id;
  private volatile boolean open = true;

  public FakeCaller(int id) {
    this.id = new byte[] {(byte) (id >> 8), (byte) id, 7};
  }

  public void close() {
    open = false;
  }

  /** Runs a call of this client. */
  public <T> T call(Supplier<T> body) {
    Server.Call call =
        new Server.Call(1, 0, null, null, RPC.RpcKind.RPC_PROTOCOL_BUFFER, id) {
          @Override
          boolean isOpen() {
            return open;
          }
        };
    Server.getCurCall().set(call);
    try {
      return body.get();
    } finally {
      Server.getCurCall().remove();
    }
  }
}
