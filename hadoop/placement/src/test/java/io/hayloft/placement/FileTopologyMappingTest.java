package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringWriter;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.net.DNSToSwitchMapping;
import org.apache.hadoop.util.ReflectionUtils;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.PatternLayout;
import org.apache.log4j.WriterAppender;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The topology file: what it gives, what it refuses, when it is read again. */
class FileTopologyMappingTest {
  @TempDir Path dir;
  private int version;

  private FileTopologyMapping start(String text, String... pairs) throws Exception {
    Configuration conf = new Configuration(false);
    conf.set(PlacementKeys.TOPOLOGY_FILE, write(text).toString());
    conf.set(PlacementKeys.TOPOLOGY_INTERVAL, "1h");
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(pairs[i], pairs[i + 1]);
    }
    // As the NameNode makes it.
    Class<? extends DNSToSwitchMapping> type = FileTopologyMapping.class;
    return (FileTopologyMapping) ReflectionUtils.newInstance(type, conf);
  }

  private Path write(String text) throws Exception {
    Path file = dir.resolve("topology");
    Files.writeString(file, text);
    Files.setLastModifiedTime(file, FileTime.fromMillis(1_000_000L * ++version));
    return file;
  }

  @Test
  void namesAddressesAndUnknownNodes() throws Exception {
    FileTopologyMapping mapping =
        start("# storage\n10.0.0.1 /r1/h1\n\nStore2  /r1/h2  # the second\nlocalhost /r2/h3\n");
    assertEquals(
        List.of("/r1/h1", "/r1/h2", "/r2/h3", "/r2/h3", "/default-rack/10.0.0.77"),
        mapping.resolve(List.of("10.0.0.1", "store2", "localhost", "127.0.0.1", "10.0.0.77")));
    assertFalse(mapping.isSingleSwitch());
  }

  @Test
  void aNameWithoutAnAddressIsSaidOnceLookedUpAgainAndItsLastAddressStands() throws Exception {
    Map<String, String> known = new HashMap<>();
    FileTopologyMapping mapping =
        new FileTopologyMapping(
            new Addresses() {
              @Override
              String lookUp(String host) throws UnknownHostException {
                String address = known.get(host);
                if (address == null) {
                  throw new UnknownHostException(host);
                }
                return address;
              }
            });
    StringWriter text = new StringWriter();
    Logger logger = Logger.getLogger(Addresses.class);
    WriterAppender appender = new WriterAppender(new PatternLayout("%p %m%n"), text);
    Level before = logger.getLevel();
    logger.setLevel(Level.WARN);
    logger.addAppender(appender);
    try {
      Configuration conf = new Configuration(false);
      conf.set(PlacementKeys.TOPOLOGY_FILE, write("store1 /r1/h1\n").toString());
      conf.set(PlacementKeys.TOPOLOGY_INTERVAL, "1h");
      mapping.setConf(conf);
      mapping.check();
      mapping.check();
      assertEquals(1, text.toString().lines().count(), text + "");
      assertTrue(text.toString().startsWith("WARN store1 "), text + "");
      assertEquals(List.of("/default-rack/10.0.0.1"), mapping.resolve(List.of("10.0.0.1")));
      known.put("store1", "10.0.0.1");
      assertFalse(mapping.check(), "the file has not changed");
      assertEquals(List.of("/r1/h1"), mapping.resolve(List.of("10.0.0.1")));
      known.clear();
      write("store1 /r1/h2\n");
      assertTrue(mapping.check());
      assertEquals(List.of("/r1/h2"), mapping.resolve(List.of("10.0.0.1")));
    } finally {
      logger.removeAppender(appender);
      logger.setLevel(before);
    }
  }

  @Test
  void aDefaultOfFullDepthIsTakenAsItIs() throws Exception {
    FileTopologyMapping mapping =
        start("a /r1/h1\n", PlacementKeys.TOPOLOGY_DEFAULT, "/lost/found");
    assertEquals(List.of("/lost/found"), mapping.resolve(List.of("x")));
    mapping = start("a /r1\n", PlacementKeys.TOPOLOGY_DEFAULT, "/lost");
    assertEquals(List.of("/lost"), mapping.resolve(List.of("x")));
  }

  @Test
  void anEmptyFilePlacesAllInTheDefaultRack() throws Exception {
    assertEquals(List.of("/default-rack/x"), start("").resolve(List.of("x")));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "a|Line 1 of FILE has 1 words where a host and its value are expected.",
        "a /r/h x|Line 1 of FILE has 3 words where a host and its value are expected.",
        "a r/h|Line 1 of FILE has the location 'r/h' where one such as /rack1/host1 is expected.",
        "a /r/h/|Line 1 of FILE has the location '/r/h/' where one such as /rack1/host1 is expected.",
        "a //h|Line 1 of FILE has the location '//h' where one such as /rack1/host1 is expected.",
        "a /1/2/3/4/5/6/7/8/9|Line 1 of FILE has a location of 9 levels; the limit is 8.",
        "a /r/h;A /r/g|Line 2 of FILE gives a the value /r/g, but line 1 gives it /r/h.",
      })
  void aBadLineStopsTheStart(String lines, String message) {
    var error =
        assertThrows(IllegalArgumentException.class, () -> start(lines.replace(';', '\n')));
    assertEquals(message.replace("FILE", dir.resolve("topology").toString()), error.getMessage());
  }

  @Test
  void differentDepthsStopTheStart() {
    var error = assertThrows(IllegalArgumentException.class, () -> start("a /r/h\nb /r\n"));
    assertTrue(error.getMessage().endsWith("all locations must have the same number of levels."), error.getMessage());
  }

  @Test
  void badKeysStopTheStart() {
    var missing =
        assertThrows(
            IllegalArgumentException.class,
            () -> start("", PlacementKeys.TOPOLOGY_FILE, dir.resolve("no") + ""));
    assertEquals(
        "Cannot read the file " + dir.resolve("no") + " of hayloft.topology.file: it does not exist.",
        missing.getMessage());
    var none =
        assertThrows(
            IllegalArgumentException.class, () -> start("", PlacementKeys.TOPOLOGY_FILE, " "));
    assertTrue(none.getMessage().endsWith("needs the topology file's path in hayloft.topology.file."));
    var depth =
        assertThrows(
            IllegalArgumentException.class,
            () -> start("a /r/h\n", PlacementKeys.TOPOLOGY_DEFAULT, "/a/b/c"));
    assertTrue(depth.getMessage().endsWith("have 2 levels: give it 1 or 2."), depth.getMessage());
    var slash =
        assertThrows(
            IllegalArgumentException.class,
            () -> start("", PlacementKeys.TOPOLOGY_DEFAULT, "rack"));
    assertTrue(slash.getMessage().startsWith("hayloft.topology.default has the location 'rack'"));
  }

  @Test
  void aChangedFileIsReadAgainAndABadOneIsNot() throws Exception {
    FileTopologyMapping mapping = start("10.0.0.1 /r1/h1\n");
    assertFalse(mapping.check());
    write("10.0.0.1 /r2/h9\n");
    assertTrue(mapping.check());
    assertEquals(List.of("/r2/h9"), mapping.resolve(List.of("10.0.0.1")));
    write("10.0.0.1\n");
    assertFalse(mapping.check());
    assertEquals(List.of("/r2/h9"), mapping.resolve(List.of("10.0.0.1")));
    write("10.0.0.1 /r2\n");
    assertFalse(mapping.check(), "another depth takes a restart");
    assertEquals(List.of("/r2/h9"), mapping.resolve(List.of("10.0.0.1")));
    Files.delete(dir.resolve("topology"));
    assertFalse(mapping.check());
    assertEquals(List.of("/r2/h9"), mapping.resolve(List.of("10.0.0.1")));
    write("10.0.0.1 /r3/h1\n");
    assertTrue(mapping.check());
    assertEquals(List.of("/r3/h1"), mapping.resolve(List.of("10.0.0.1")));
  }

  @Test
  void theFileIsWatched() throws Exception {
    FileTopologyMapping mapping =
        start("10.0.0.1 /r1/h1\n", PlacementKeys.TOPOLOGY_INTERVAL, "20ms");
    write("10.0.0.1 /r2/h9\n");
    long end = System.nanoTime() + 10_000_000_000L;
    while (!mapping.resolve(List.of("10.0.0.1")).equals(List.of("/r2/h9"))) {
      assertTrue(System.nanoTime() < end, "not read again within ten seconds");
      Thread.sleep(10);
    }
  }
}
