package io.hayloft.pfs.layout;

import io.hayloft.pfs.PfsKeys;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/** MooseFS: chunks of 64 MiB, each on some servers, which {@code mfsfileinfo} prints. */
public final class MooseFsLayout implements LayoutProvider {
  private static final long CHUNK = 64L << 20;

  /** 64 TiB, more than a file of MooseFS can have. */
  private static final int CHUNKS_MAX = 1 << 20;

  private static final Pattern CHUNK_LINE = Pattern.compile("\\tchunk (\\d{1,7}): .*");
  private static final Pattern COPY_LINE =
      Pattern.compile("\\t\\tcopy \\d+: ([^\\s/]+):\\d+ \\(status:VALID\\)");
  private static final Pattern EMPTY_LINE = Pattern.compile("\\tno chunks.*");

  private long limitMs = PfsKeys.LAYOUT_TIMEOUT_DEFAULT_MS;

  @Override
  public void initialize(Configuration conf, Path root) {
    limitMs = ToolOutput.limitMs(conf);
  }

  @Override
  public Map<Path, FileLayout> locate(List<Path> files) throws IOException {
    List<String> command = new ArrayList<>(List.of("mfsfileinfo"));
    Map<String, Path> byName = new HashMap<>();
    for (Path file : files) {
      // A newline in a name would look like lines of the answer.
      if (file.toString().indexOf('\n') < 0) {
        command.add(file.toString());
        byName.put(file.toString(), file);
      }
    }
    if (byName.isEmpty()) {
      return Map.of();
    }
    String output = ToolOutput.of(command, limitMs);
    Map<Path, FileLayout> found = parse(output, byName);
    if (found.isEmpty()) {
      throw new IOException("mfsfileinfo told of no file: " + ToolOutput.shortened(output));
    }
    return found;
  }

  /** What was printed of the files asked for; a part that is not understood is left out. */
  static Map<Path, FileLayout> parse(String output, Map<String, Path> asked) {
    Map<Path, FileLayout> found = new HashMap<>();
    Path file = null;
    List<List<String>> chunks = new ArrayList<>();
    for (String line : output.split("\n")) {
      if (!line.startsWith("\t")) {
        // The next file, or an error about it.
        keep(found, file, chunks);
        file = line.endsWith(":") ? asked.get(line.substring(0, line.length() - 1)) : null;
        chunks = new ArrayList<>();
      } else if (file != null && !understood(line, chunks)) {
        file = null;
      }
    }
    keep(found, file, chunks);
    return found;
  }

  private static void keep(Map<Path, FileLayout> found, Path file, List<List<String>> chunks) {
    if (file != null) {
      found.put(file, new FileLayout(CHUNK, chunks));
    }
  }

  private static boolean understood(String line, List<List<String>> chunks) {
    Matcher chunk = CHUNK_LINE.matcher(line);
    if (chunk.matches()) {
      int number = Integer.parseInt(chunk.group(1));
      if (number >= CHUNKS_MAX || number < chunks.size()) {
        return false;
      }
      // Chunks that were never written are not listed.
      while (chunks.size() < number) {
        chunks.add(List.of());
      }
      chunks.add(new ArrayList<>());
      return true;
    }
    Matcher copy = COPY_LINE.matcher(line);
    if (copy.matches()) {
      if (chunks.isEmpty()) {
        return false;
      }
      chunks.get(chunks.size() - 1).add(copy.group(1));
      return true;
    }
    // Copies that are not valid, and empty files, say nothing of a place.
    return line.startsWith("\t\t") || EMPTY_LINE.matcher(line).matches();
  }
}
