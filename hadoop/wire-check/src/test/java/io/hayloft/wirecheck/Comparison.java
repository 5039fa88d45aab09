package io.hayloft.wirecheck;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.Descriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.EnumDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.EnumValueDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FieldDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FieldDescriptor.Type;

/**
 * Differences between the Rust table and Hadoop's descriptors. Names are compared without regard to
 * case and underscores, because each language has its own convention. A field that only Hadoop has
 * is fine when it is optional (unknown fields pass), and a difference when it is required.
 */
final class Comparison {
  private final HadoopDescriptors hadoop;
  private final List<String> differences = new ArrayList<>();

  private Comparison(HadoopDescriptors hadoop) {
    this.hadoop = hadoop;
  }

  static List<String> ofMessage(HadoopDescriptors hadoop, String name,
      List<FieldTable.Field> fields) {
    Comparison comparison = new Comparison(hadoop);
    comparison.message(name, fields);
    return comparison.differences;
  }

  static List<String> ofEnum(HadoopDescriptors hadoop, String name,
      List<FieldTable.Value> values) {
    Comparison comparison = new Comparison(hadoop);
    comparison.enumeration(name, values);
    return comparison.differences;
  }

  private void message(String name, List<FieldTable.Field> fields) {
    Descriptor theirs = hadoop.messages.get(name);
    if (theirs == null) {
      differences.add("Hadoop has no message " + name);
      return;
    }
    Set<Integer> seen = new HashSet<>();
    for (FieldTable.Field ours : fields) {
      FieldDescriptor field = theirs.findFieldByNumber(ours.number());
      if (!seen.add(ours.number())) {
        differences.add(name + " declares number " + ours.number() + " twice");
      } else if (field == null) {
        differences.add(name + " has no field " + ours.number() + " (" + ours.name() + ")");
      } else {
        field(ours, field);
      }
    }
    for (FieldDescriptor field : theirs.getFields()) {
      if (field.isRequired() && !seen.contains(field.getNumber())) {
        differences.add("required field " + field.getFullName() + " is missing");
      }
    }
  }

  private void field(FieldTable.Field ours, FieldDescriptor theirs) {
    String at = theirs.getFullName() + " = " + theirs.getNumber();
    same(at, "name", normal(ours.name()), normal(theirs.getName()));
    same(at, "type", ours.type(), theirs.getType().name().toLowerCase(Locale.ROOT));
    same(at, "label", ours.label(), label(theirs));
    same(at, "packed", String.valueOf(ours.packed()), String.valueOf(theirs.isPacked()));
    same(at, "type name", ours.typeName(), typeName(theirs));
    same(at, "default", normalDefault(ours.defaultValue()), normalDefault(defaultValue(theirs)));
  }

  private void same(String at, String what, String ours, String theirs) {
    if (!ours.equals(theirs)) {
      differences.add(at + ": " + what + " is " + theirs + " in Hadoop, " + ours + " here");
    }
  }

  private void enumeration(String name, List<FieldTable.Value> values) {
    EnumDescriptor theirs = hadoop.enums.get(name);
    if (theirs == null) {
      differences.add("Hadoop has no enum " + name);
      return;
    }
    Set<Integer> seen = new HashSet<>();
    for (FieldTable.Value ours : values) {
      EnumValueDescriptor value = theirs.findValueByNumber(ours.number());
      seen.add(ours.number());
      // The short form CRC32 of CHECKSUM_CRC32 is allowed.
      if (value == null || !normal(value.getName()).endsWith(normal(ours.name()))) {
        differences.add(name + " value " + ours.number() + " is "
            + (value == null ? "absent" : value.getName()) + " in Hadoop, " + ours.name()
            + " here");
      }
    }
    for (EnumValueDescriptor value : theirs.getValues()) {
      if (!seen.contains(value.getNumber())) {
        differences.add("value " + value.getFullName() + " is missing");
      }
    }
  }

  private static String label(FieldDescriptor field) {
    return field.isRepeated() ? "repeated" : field.isRequired() ? "required" : "optional";
  }

  private static String typeName(FieldDescriptor field) {
    return switch (field.getType()) {
      case MESSAGE -> field.getMessageType().getFullName();
      case ENUM -> field.getEnumType().getFullName();
      default -> "-";
    };
  }

  private static String defaultValue(FieldDescriptor field) {
    if (!field.hasDefaultValue()) {
      return "-";
    }
    Object value = field.getDefaultValue();
    return field.getType() == Type.ENUM ? ((EnumValueDescriptor) value).getName()
        : String.valueOf(value);
  }

  /** An empty default is what both sides take for an absent one anyway. */
  private static String normalDefault(String value) {
    return value.isEmpty() ? "-" : value.startsWith("-") ? value
        : normal(value).replaceFirst("^checksum", "");
  }

  private static String normal(String name) {
    return name.replace("_", "").toLowerCase(Locale.ROOT);
  }
}
