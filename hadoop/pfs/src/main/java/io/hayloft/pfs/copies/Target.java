package io.hayloft.pfs.copies;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A directory for copies that the file system keeps on one server, or on those of one rack.
 *
 * @param host the server as the scheduler calls it, or a rack, which starts with a slash
 * @param name the directory below the root, as it is written in attributes
 */
public record Target(String host, String name, Path directory) {
  private static final Pattern PART =
      Pattern.compile("(/?[A-Za-z0-9._:-][A-Za-z0-9._:/-]{0,254})=/?([A-Za-z0-9._/-]{1,1024})");

  /** Whether the directory is a rack's: the layout of each copy tells its servers. */
  boolean isRack() {
    return host.startsWith("/");
  }

  /** Reads {@code HOST=/DIRECTORY,/RACK=/DIRECTORY}. */
  public static List<Target> parse(String text, Path root) {
    List<Target> targets = new ArrayList<>();
    for (String part : text.split(",")) {
      if (part.isBlank()) {
        continue;
      }
      Matcher matcher = PART.matcher(part.trim());
      if (!matcher.matches()) {
        throw new IllegalArgumentException(
            "fs.pfs.targets must be HOST=/DIRECTORY,HOST=/DIRECTORY with plain names, or /RACK for"
                + " HOST; this part is not: "
                + part.trim());
      }
      Path directory = root.resolve(matcher.group(2)).normalize();
      if (!directory.startsWith(root) || directory.equals(root)) {
        throw new IllegalArgumentException(
            "a directory of fs.pfs.targets must be below the root: " + part.trim());
      }
      String name = root.relativize(directory).toString();
      if (of(targets, name).isPresent()) {
        throw new IllegalArgumentException("fs.pfs.targets names " + name + " twice");
      }
      targets.add(new Target(matcher.group(1), name, directory));
    }
    return List.copyOf(targets);
  }

  static Optional<Target> of(List<Target> targets, String name) {
    return targets.stream().filter(target -> target.name().equals(name)).findFirst();
  }
}
