package io.hayloft.wirecheck;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hdfs.protocol.datatransfer.Op;
import org.apache.hadoop.hdfs.protocolPB.ClientDatanodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.DatanodeLifelineProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.DatanodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.InterDatanodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.NamenodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.ReconfigurationProtocolPB;
import org.apache.hadoop.ipc.ProtocolInfo;
import org.apache.hadoop.ipc.ProtocolMetaInfoPB;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Operation codes, numbers, and names that travel as text: none of them is in a descriptor. */
class NamesAndConstantsTest {
  private static final List<Class<?>> PROTOCOLS = List.of(ClientDatanodeProtocolPB.class,
      ClientNamenodeProtocolPB.class, DatanodeLifelineProtocolPB.class, DatanodeProtocolPB.class,
      InterDatanodeProtocolPB.class, NamenodeProtocolPB.class, ReconfigurationProtocolPB.class,
      ProtocolMetaInfoPB.class);

  private static FieldTable table;

  @BeforeAll
  static void readTable() throws IOException, InterruptedException {
    table = FieldTable.load();
  }

  @Test
  void operationsHaveHadoopsCodes() {
    Map<String, Integer> ours = new HashMap<>();
    table.ops.forEach(op -> ours.put(op.name(), op.number()));
    Map<String, Integer> theirs = new HashMap<>();
    for (Op op : Op.values()) {
      theirs.put(op.name(), op.code & 0xFF);
    }
    assertEquals(theirs, ours);
  }

  @Test
  void constantsAreHadoops() throws ReflectiveOperationException {
    assertFalse(table.constants.isEmpty());
    for (FieldTable.Constant constant : table.constants) {
      Field field = Class.forName(constant.className()).getDeclaredField(constant.field());
      field.setAccessible(true);
      assertEquals(((Number) field.get(null)).longValue(), constant.number(), constant.toString());
    }
  }

  @Test
  void protocolsHaveHadoopsNamesAndVersions() {
    Map<String, Long> theirs = new HashMap<>();
    for (Class<?> protocol : PROTOCOLS) {
      ProtocolInfo info = protocol.getAnnotation(ProtocolInfo.class);
      theirs.put(info.protocolName(), info.protocolVersion());
    }
    Map<String, Long> ours = new HashMap<>();
    table.protocols.forEach(protocol -> ours.put(protocol.name(), protocol.version()));
    assertEquals(theirs, ours);
  }

  @Test
  void exceptionsExist() throws ClassNotFoundException {
    assertFalse(table.exceptions.isEmpty());
    for (String name : table.exceptions) {
      Class<?> type = Class.forName(name, false, getClass().getClassLoader());
      assertTrue(Throwable.class.isAssignableFrom(type), name);
    }
  }
}
