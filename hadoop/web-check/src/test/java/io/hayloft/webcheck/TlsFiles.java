package io.hayloft.webcheck;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;

/** Keystores by keytool, and the files of Hadoop that name them, on the class path. */
final class TlsFiles {
  private static final String PASSWORD = "changeit";

  private TlsFiles() {}

  /** Makes them anew. */
  static void make() throws IOException {
    Path dir = Path.of(System.getProperty("hayloft.web.classpath"));
    Path keys = dir.resolve("server.p12");
    Path trust = dir.resolve("trust.p12");
    Path certificate = dir.resolve("server.pem");
    for (Path old : List.of(keys, trust, certificate)) {
      Files.deleteIfExists(old);
    }
    keytool(
        keys, "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=localhost",
        "-ext", "san=ip:127.0.0.1,dns:localhost", "-validity", "2");
    keytool(keys, "-exportcert", "-rfc", "-file", certificate.toString());
    keytool(trust, "-importcert", "-noprompt", "-file", certificate.toString());
    Configuration server = new Configuration(false);
    store(server, "ssl.server.keystore", keys);
    server.set("ssl.server.keystore.keypassword", PASSWORD);
    store(server, "ssl.server.truststore", trust);
    write(dir.resolve("ssl-server.xml"), server);
    Configuration client = new Configuration(false);
    store(client, "ssl.client.truststore", trust);
    write(dir.resolve("ssl-client.xml"), client);
  }

  private static void store(Configuration conf, String prefix, Path file) {
    conf.set(prefix + ".location", file.toString());
    conf.set(prefix + ".password", PASSWORD);
    conf.set(prefix + ".type", "pkcs12");
  }

  private static void write(Path file, Configuration conf) throws IOException {
    try (OutputStream out = Files.newOutputStream(file)) {
      conf.writeXml(out);
    }
  }

  private static void keytool(Path store, String command, String... more) throws IOException {
    Path tool = Path.of(System.getProperty("java.home"), "bin", "keytool");
    List<String> words = new ArrayList<>(List.of(tool.toString(), command));
    words.addAll(List.of(more));
    words.addAll(List.of("-alias", "node", "-storetype", "PKCS12", "-storepass", PASSWORD));
    words.addAll(List.of("-keystore", store.toString()));
    try {
      int code = new ProcessBuilder(words).inheritIO().start().waitFor();
      if (code != 0) {
        throw new IOException("keytool " + command + " ended with " + code);
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted at keytool", interrupted);
    }
  }
}
