package io.hayloft.pfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.PfsKeys;
import io.hayloft.pfs.TestRoot;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.RemoteIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What the mounted file system of scripts/pfs-mounted says of its own files. */
@EnabledIfEnvironmentVariable(named = "PFS_KIND", matches = "moosefs|gluster|cephfs")
class MountedLayoutTest {
  @Test
  void everyBlockHasServers() throws Exception {
    Path root = TestRoot.of("layout");
    Files.write(root.resolve("one file"), new byte[100]);
    Files.write(root.resolve("another"), new byte[3 << 20]);
    Configuration conf = TestRoot.configure(new Configuration(), root);
    conf.set(PfsKeys.LAYOUT, System.getenv("PFS_KIND"));
    try (FileSystem fs = TestRoot.open(conf)) {
      RemoteIterator<LocatedFileStatus> files =
          fs.listLocatedStatus(new org.apache.hadoop.fs.Path("/"));
      int seen = 0;
      while (files.hasNext()) {
        LocatedFileStatus file = files.next();
        assertEquals(1, file.getBlockLocations().length);
        for (String host : file.getBlockLocations()[0].getHosts()) {
          assertTrue(host.matches("cs[123]"), host);
        }
        seen++;
      }
      assertEquals(2, seen);
    }
  }
}
