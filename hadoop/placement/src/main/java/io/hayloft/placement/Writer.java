package io.hayloft.placement;

import java.util.Arrays;
import org.apache.hadoop.ipc.Server;

/**
 * Who writes, as far as a placement policy is told: the client's host, the id of the client's RPC
 * connection pool (one a process; the NameNode passes no client name), and the file, which has one
 * writer at a time.
 *
 * @param client host and process
 * @param path the file
 */
record Writer(Client client, String path) {

  /**
   * A client process.
   *
   * @param host address as the NameNode has it
   * @param id the RPC client's id; empty where the call does not come over RPC (WebHDFS, tests)
   */
  record Client(String host, Bytes id) {
    boolean known() {
      return id.value.length > 0;
    }
  }

  /** Bytes compared by content. */
  static final class Bytes {
    private static final Bytes NONE = new Bytes(new byte[0]);
    private final byte[] value;
    private final int hash;

    private Bytes(byte[] value) {
      this.value = value;
      this.hash = Arrays.hashCode(value);
    }

    static Bytes of(byte[] value) {
      return value == null || value.length == 0 ? NONE : new Bytes(value);
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Bytes bytes && Arrays.equals(value, bytes.value);
    }

    @Override
    public int hashCode() {
      return hash;
    }
  }

  /** The writer of the call that this thread serves. */
  static Writer of(String host, String path) {
    return new Writer(new Client(host, Bytes.of(Server.getClientId())), path);
  }
}
