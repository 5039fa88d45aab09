package io.hayloft.wirecheck;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Function;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.rawcoder.RSLegacyRawEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RSRawEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.XORRawEncoder;
import org.junit.jupiter.api.Test;

/**
 * The parity that Hadoop's own coders compute, against the file that the Rust coder is tested with.
 * With {@code -Dhayloft.golden.write=true} the file is written anew.
 */
class CoderVectorsTest {
  private static final Path GOLDEN =
      Path.of("../../crates/coder/tests/golden/hadoop-3.5.0.txt");

  /** Bytes of a unit: several registers of a processor, and a rest. */
  private static final int LENGTH = 67;

  private record Shape(String codec, int data, int parity) {
  }

  /** The policies that Hadoop ships, and shapes beside them. */
  private static final List<Shape> SHAPES = List.of(
      new Shape("rs", 3, 2), new Shape("rs", 6, 3), new Shape("rs", 10, 4),
      new Shape("rs", 1, 1), new Shape("rs", 8, 1), new Shape("rs", 12, 4), new Shape("rs", 24, 8),
      new Shape("rs-legacy", 6, 3), new Shape("rs-legacy", 3, 2), new Shape("rs-legacy", 10, 4),
      new Shape("rs-legacy", 1, 1),
      new Shape("xor", 2, 1), new Shape("xor", 6, 1));

  @Test
  void parityIsThatOfTheFile() throws IOException {
    StringBuilder text = new StringBuilder();
    for (Shape shape : SHAPES) {
      append(text, shape);
    }
    if (Boolean.getBoolean("hayloft.golden.write")) {
      Files.createDirectories(GOLDEN.getParent());
      Files.writeString(GOLDEN, text);
    }
    assertEquals(Files.readString(GOLDEN), text.toString());
  }

  /** A line "codec data parity length", then a line of hexadecimal digits for each parity unit. */
  private static void append(StringBuilder text, Shape shape) throws IOException {
    byte[][] data = new byte[shape.data()][];
    for (int unit = 0; unit < data.length; unit++) {
      data[unit] = bytesOf(unit);
    }
    byte[][] parity = new byte[shape.parity()][LENGTH];
    encoder(shape).encode(data, parity);
    text.append(shape.codec()).append(' ').append(shape.data()).append(' ')
        .append(shape.parity()).append(' ').append(LENGTH).append('\n');
    for (byte[] unit : parity) {
      text.append(HexFormat.of().formatHex(unit)).append('\n');
    }
  }

  private static RawErasureEncoder encoder(Shape shape) {
    Function<ErasureCoderOptions, RawErasureEncoder> make = switch (shape.codec()) {
      case "rs" -> RSRawEncoder::new;
      case "rs-legacy" -> RSLegacyRawEncoder::new;
      default -> XORRawEncoder::new;
    };
    return make.apply(new ErasureCoderOptions(shape.data(), shape.parity()));
  }

  /** As {@code data_unit} in the Rust test. */
  private static byte[] bytesOf(int unit) {
    byte[] bytes = new byte[LENGTH];
    for (int at = 0; at < LENGTH; at++) {
      bytes[at] = (byte) (31 * at + 59 * unit + at / 7);
    }
    return bytes;
  }
}
