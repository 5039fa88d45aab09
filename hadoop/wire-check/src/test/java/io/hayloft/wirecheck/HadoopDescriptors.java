package io.hayloft.wirecheck;

import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.hdfs.protocol.proto.AclProtos;
import org.apache.hadoop.hdfs.protocol.proto.ClientDatanodeProtocolProtos;
import org.apache.hadoop.hdfs.protocol.proto.ClientNamenodeProtocolProtos;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos;
import org.apache.hadoop.hdfs.protocol.proto.DatanodeLifelineProtocolProtos;
import org.apache.hadoop.hdfs.protocol.proto.DatanodeProtocolProtos;
import org.apache.hadoop.hdfs.protocol.proto.ErasureCodingProtos;
import org.apache.hadoop.hdfs.protocol.proto.HdfsProtos;
import org.apache.hadoop.hdfs.protocol.proto.HdfsServerProtos;
import org.apache.hadoop.hdfs.protocol.proto.InterDatanodeProtocolProtos;
import org.apache.hadoop.hdfs.protocol.proto.NamenodeProtocolProtos;
import org.apache.hadoop.hdfs.protocol.proto.ReconfigurationProtocolProtos;
import org.apache.hadoop.hdfs.server.namenode.FsImageProto;
import org.apache.hadoop.ipc.protobuf.IpcConnectionContextProtos;
import org.apache.hadoop.ipc.protobuf.ProtobufRpcEngine2Protos;
import org.apache.hadoop.ipc.protobuf.ProtocolInfoProtos;
import org.apache.hadoop.ipc.protobuf.RpcHeaderProtos;
import org.apache.hadoop.security.proto.SecurityProtos;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.Descriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.EnumDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FileDescriptor;

/** Messages and enums of the Hadoop on the class path, by full name, nested ones included. */
final class HadoopDescriptors {
  final Map<String, Descriptor> messages = new HashMap<>();
  final Map<String, EnumDescriptor> enums = new HashMap<>();

  HadoopDescriptors() {
    add(AclProtos.getDescriptor());
    add(ClientDatanodeProtocolProtos.getDescriptor());
    add(ClientNamenodeProtocolProtos.getDescriptor());
    add(DataTransferProtos.getDescriptor());
    add(DatanodeLifelineProtocolProtos.getDescriptor());
    add(DatanodeProtocolProtos.getDescriptor());
    add(ErasureCodingProtos.getDescriptor());
    add(FsImageProto.getDescriptor());
    add(HdfsProtos.getDescriptor());
    add(HdfsServerProtos.getDescriptor());
    add(InterDatanodeProtocolProtos.getDescriptor());
    add(NamenodeProtocolProtos.getDescriptor());
    add(ReconfigurationProtocolProtos.getDescriptor());
    add(IpcConnectionContextProtos.getDescriptor());
    add(ProtobufRpcEngine2Protos.getDescriptor());
    add(ProtocolInfoProtos.getDescriptor());
    add(RpcHeaderProtos.getDescriptor());
    add(SecurityProtos.getDescriptor());
  }

  private void add(FileDescriptor file) {
    file.getMessageTypes().forEach(this::add);
    file.getEnumTypes().forEach(e -> enums.put(e.getFullName(), e));
  }

  private void add(Descriptor message) {
    messages.put(message.getFullName(), message);
    message.getNestedTypes().forEach(this::add);
    message.getEnumTypes().forEach(e -> enums.put(e.getFullName(), e));
  }
}
