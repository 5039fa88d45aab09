package io.hayloft.pfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Answers of {@code pvfs2-viewdist} in the forms of its documentation; none of a real one. */
class OrangeLayoutTest {
  private static final String STRIPED =
      String.join(
          "\n",
          "dist_name = simple_stripe",
          "dist_params:",
          "strip_size:131072",
          "",
          "Number of datafiles/servers = 3",
          "Server 0 - tcp://io4:3337, handle: 8223372036854744180 (721f494c589b8474.bstream)",
          "Server 1 - tcp://10.0.0.7:3334, handle: 5223372036854744174",
          "(487d2531626f846e.bstream)",
          "Server 2 - ib://io6.lab:3335,tcp://io6.lab:3334, handle: 622337203 (5.bstream)",
          "");

  private static final String BASIC =
      String.join(
          "\n",
          "dist_name = basic_dist",
          "dist_params:",
          "none",
          "Metadataserver: tcp://io1:3334",
          "Number of datafiles/servers = 1",
          "Datafile 0 - tcp://io9:3334, handle: 5223372036854744172 (487d2531626f846c.bstream)",
          "");

  @Test
  void stripsGoToServersInTurn() {
    assertEquals(
        new FileLayout(131_072, List.of(List.of("io4"), List.of("10.0.0.7"), List.of("io6.lab"))),
        OrangeLayout.parse(STRIPED));
    assertEquals(FileLayout.whole(List.of("io9")), OrangeLayout.parse(BASIC));
  }

  @Test
  void whatIsCutOrHugeOrOfAnotherKindIsNoLayout() {
    for (int length = 0; length < STRIPED.lastIndexOf("handle: ") + 8; length++) {
      assertNull(OrangeLayout.parse(STRIPED.substring(0, length)), "cut at " + length);
    }
    assertNull(OrangeLayout.parse(STRIPED.replace("131072", "0")));
    assertNull(OrangeLayout.parse(STRIPED.replace("131072", "9999999999999")));
    assertNull(OrangeLayout.parse(STRIPED.replace("131072", "99999999999999999999")));
    assertNull(OrangeLayout.parse(STRIPED.replace("= 3", "= 4")));
    assertNull(OrangeLayout.parse(STRIPED.replace("= 3", "= 99999999999")));
    assertNull(OrangeLayout.parse(STRIPED.replace("Server 1", "Server 2")));
    assertNull(OrangeLayout.parse(STRIPED.replace("simple_stripe", "twod_stripe")));
    assertNull(OrangeLayout.parse(BASIC.replace("basic_dist", "varstrip_dist")));
    assertNull(OrangeLayout.parse("Could not open /mnt/orange/none\n"));
  }

  @Test
  void garbageNeverThrows() {
    Random random = new Random(2);
    for (int round = 0; round < 2_000; round++) {
      char[] text = STRIPED.toCharArray();
      for (int change = 0; change < 1 + round % 40; change++) {
        text[random.nextInt(text.length)] = (char) random.nextInt(128);
      }
      OrangeLayout.parse(new String(text));
    }
  }
}
