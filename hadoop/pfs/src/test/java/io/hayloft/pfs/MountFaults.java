package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Mounts that are full, read-only or gone. scripts/pfs-mounted runs this in a namespace of mounts;
 * its name keeps it out of other runs.
 */
class MountFaults {
  private final java.nio.file.Path at =
      java.nio.file.Path.of(System.getenv("PFS_WORK")).resolve("small");
  private FileSystem fs;

  @BeforeEach
  void mount() throws Exception {
    Files.createDirectories(at);
    TestRoot.run("mount", "-t", "tmpfs", "-o", "size=2m", "none", at.toString());
    Configuration conf = TestRoot.configure(new Configuration(), at);
    conf.setBoolean(PfsKeys.MUST_BE_MOUNT, true);
    fs = TestRoot.open(conf);
    fs.create(new Path("/there"), false).close();
  }

  @AfterEach
  void unmount() throws Exception {
    fs.close();
    if (MountCheck.isMountPoint(at)) {
      TestRoot.run("umount", at.toString());
    }
  }

  @Test
  void aFullMountIsToldToTheWriter() {
    IOException e =
        assertThrows(
            IOException.class,
            () -> {
              try (FSDataOutputStream out = fs.create(new Path("/large"), false)) {
                out.write(new byte[16 << 20]);
              }
            });
    assertTrue(e.getMessage().contains("No space left on device: free space"), e.getMessage());
  }

  @Test
  void aReadOnlyMountIsRead() throws Exception {
    TestRoot.run("mount", "-o", "remount,ro", at.toString());
    IOException e = assertThrows(IOException.class, () -> fs.create(new Path("/new"), false));
    assertTrue(e.getMessage().contains("Read-only file system: mount it"), e.getMessage());
    assertThrows(IOException.class, () -> fs.delete(new Path("/there"), false));
    assertThrows(IOException.class, () -> fs.mkdirs(new Path("/directory")));
    assertEquals(0, fs.getFileStatus(new Path("/there")).getLen());
    TestRoot.run("mount", "-o", "remount,rw", at.toString());
  }

  @Test
  void aMountThatGoesIsNotMistakenForAnEmptyOne() throws Exception {
    TestRoot.run("umount", at.toString());
    TimeUnit.MILLISECONDS.sleep(1_100);
    for (IOException e :
        new IOException[] {
          assertThrows(IOException.class, () -> fs.create(new Path("/new"), false)),
          assertThrows(IOException.class, () -> fs.listStatus(new Path("/"))),
          assertThrows(IOException.class, () -> fs.mkdirs(new Path("/directory"))),
          assertThrows(IOException.class, () -> fs.getFileStatus(new Path("/there")))
        }) {
      assertTrue(e.getMessage().contains("is not mounted"), e.getMessage());
    }
    assertEquals(0, at.toFile().list().length, "nothing fell on this host's disk");
    TestRoot.run("mount", "-t", "tmpfs", "-o", "size=2m", "none", at.toString());
    fs.create(new Path("/again"), false).close();
  }
}
