// SPDX-License-Identifier: MIT
#include "tensor/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune::pickle {
namespace {

using finetune::testing::message_of;
using ::testing::HasSubstr;
using std::string_literals::operator""s;

std::string refusal(const std::string& bytes) {
  return message_of<Error>([&] { (void)parse(bytes, "x.pt"); });
}

// Returns ('storage', torch.FloatStorage, key, 'cpu', elements) as a persistent id.
std::string storage(const std::string& key, char elements, const std::string& type = "Float") {
  return "(X\x07\0\0\0storagectorch\n"s + type + "Storage\nX" + static_cast<char>(key.size()) +
         "\0\0\0"s + key + "X\x03\0\0\0cpuK"s + elements + "tQ";
}

std::string tensor(const std::string& from, const std::string& offset, const std::string& sizes,
                   const std::string& strides) {
  return "\x80\x02"s + "ctorch._utils\n_rebuild_tensor_v2\n(" + from + offset + sizes + strides +
         "\x89" + "ccollections\nOrderedDict\n)RtR.";
}

TEST(Pickle, ReadsATensorWithinItsStorage) {
  const Pickle pickle =
      parse(tensor(storage("0", 6), "K\x02", "K\x02K\x02\x86", "K\x02K\x01\x86"), "x.pt");
  ASSERT_EQ(pickle.tensors.size(), 1U);
  EXPECT_EQ(pickle.tensors[0].offset, 2);
  EXPECT_EQ(pickle.nodes[pickle.root].kind, Kind::kTensor);
  EXPECT_EQ(pickle.storages[0].elements, 6U);
}

TEST(Pickle, RefusesTensorsBeyondTheirStorage) {
  const std::string minus_one = "J\xff\xff\xff\xff";
  const std::string large = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  const std::string one = "K\x01\x85";
  for (const std::string& bytes :
       {tensor(storage("0", 6), "K\x06", one, one), tensor(storage("0", 6), minus_one, one, one),
        tensor(storage("0", 6), "K"s + '\0', "K\x07\x85", one),
        tensor(storage("0", 6), "K"s + '\0', "K\x03\x85", "K\x03\x85"),
        tensor(storage("0", 6), "K"s + '\0', "K\x03\x85", minus_one + "\x85"),
        tensor(storage("0", 6), large, one, one),
        tensor(storage("0", 6), "K"s + '\0', large + "\x85", "K"s + '\0' + "\x85"),
        tensor(storage("0", 6), "K"s + '\0', "K\x02\x85", large + "\x85"),
        tensor(storage("0", 6), "K"s + '\0', large + large + "\x86", "K\x01K\x01\x86"),
        tensor(storage("0", 6), "K"s + '\0', "K\x01K\x01\x86", one)}) {
    EXPECT_THAT(refusal(bytes), HasSubstr("tensor"));
  }
}

TEST(Pickle, RefusesStoragesThatAreNotTorchs) {
  const std::string one = "K\x01\x85";
  for (const std::string& key : {"../0"s, ""s, "a"s, "0/1"s, "1234567890"s}) {
    EXPECT_THAT(refusal(tensor(storage(key, 1), "K"s + '\0', one, one)), HasSubstr("storage"));
  }
  EXPECT_GOLDEN(refusal("\x80\x02("s + storage("0", 1) + storage("0", 2) + "t."));
  EXPECT_THAT(refusal(tensor(storage("0", 1, "Untyped"), "K"s + '\0', one, one)),
              HasSubstr("UntypedStorage"));
}

TEST(Pickle, ExecutesNothing) {
  EXPECT_GOLDEN(
      refusal("\x80\x02"
              "cposix\nsystem\n(X\x02\0\0\0idtR."s));
  EXPECT_THAT(refusal("\x80\x02"
                      "c__builtin__\neval\n(X\x01\0\0\0"
                      "1tR."s),
              HasSubstr("eval"));
  EXPECT_THAT(refusal("\x80\x02"
                      "(X\x02\0\0\0idios\nsystem\n."s),
              HasSubstr("opcode 105"));  // INST
  EXPECT_GOLDEN(
      refusal("\x80\x02"
              "ccollections\nOrderedDict\n(K\x01tR."s));
  EXPECT_GOLDEN(refusal("\x80\x02]}b."s));
  EXPECT_GOLDEN(
      refusal("\x80\x02"
              "ctorch\nFloatStorage\n."s));
}

TEST(Pickle, NamesWhatAHostileFileWantsToCall) {
  const std::string argument = "(X\x02\0\0\0idtR."s;
  for (const std::string name :
       {"os.system", "subprocess.Popen", "builtins.exec", "torch.load", "torch.hub.load",
        "numpy.core.multiarray.scalar", "torch.storage._load_from_bytes",
        "torch._utils._rebuild_tensor_v3", "transformers.training_args.TrainingArguments"}) {
    const size_t dot = name.rfind('.');
    EXPECT_THAT(refusal("\x80\x02"
                        "c"s +
                        name.substr(0, dot) + "\n" + name.substr(dot + 1) + "\n" + argument),
                HasSubstr("'" + name + "'"));
  }
}

TEST(Pickle, ReadsARepeatedElementButNotAnEndlessOne) {
  const Pickle pickle =
      parse(tensor(storage("0", 1), "K"s + '\0', "M\0\x02\x85"s, "K"s + '\0' + "\x85"), "x.pt");
  EXPECT_EQ(pickle.tensors[0].sizes[0], 512);
  EXPECT_GOLDEN(
      refusal(tensor(storage("0", 1), "K"s + '\0', "J\0\0\0\x7f\x85"s, "K"s + '\0' + "\x85")));
  const std::string large = "\x8a\x08\0\0\0\0\0\0\0\x40"s;
  EXPECT_GOLDEN(refusal(tensor(storage("0", 1), "K"s + '\0', large + large + "K"s + '\0' + "\x87",
                               "K\x01K\x01K\x01\x87")))
      << "an empty tensor of a shape that no number holds";
}

TEST(Pickle, ReadsTextOfPython2) {
  const Pickle pickle = parse(
      "\x80\x02"
      "U\x01"
      "aT\x02\0\0\0"
      "bc\x86."s,
      "x.pt");
  EXPECT_EQ(pickle.nodes[pickle.nodes[pickle.root].children[1]].text, "bc");
}

TEST(Pickle, TakesOneOfSeveralInARow) {
  const std::string row = "\x80\x02K\x01.\x80\x02K\x02.rest"s;
  std::string_view rest = row;
  EXPECT_EQ(parse_legacy(rest, "x.pt").nodes[0].integer, 1);
  EXPECT_EQ(parse_legacy(rest, "x.pt").nodes[0].integer, 2);
  EXPECT_EQ(rest, "rest");
  EXPECT_GOLDEN(refusal(row));
}

TEST(Pickle, RefusesMalformedPrograms) {
  for (const std::string& body : {""s,
                                  "."s,
                                  "0."s,
                                  "t."s,
                                  "N"s,
                                  "NN."s,
                                  "N.N"s,
                                  "(."s,
                                  "a."s,
                                  "]a."s,
                                  "N]s."s,
                                  "}(Nu."s,
                                  "}NNs."s,
                                  "}(K\x01NK\x01Nu."s,
                                  "(]a"s,
                                  "h\x05."s,
                                  "X\xff\xff\xff\xff."s,
                                  "X\x01\0\0\0\xff."s,
                                  "K"s,
                                  "G\0\0."s,
                                  "\x8a\x09"s + std::string(9, '\1') + ".",
                                  "Q."s,
                                  "NQ."s,
                                  "NNR."s,
                                  "R."s,
                                  "\x85."s,
                                  "cabc"s,
                                  "}(]Nu."s,
                                  "u."s,
                                  "e."s,
                                  "b."s,
                                  "Nb."s,
                                  "q\x01."s,
                                  "j\xff\xff\xff\xff."s}) {
    EXPECT_THROW((void)parse("\x80\x02"s + body, "x.pt"), Error) << body;
  }
  EXPECT_THROW((void)parse("\x80\x04N.", "x.pt"), Error) << "another protocol";
}

TEST(Pickle, RefusesCyclesDepthAndValuesThatUnfold) {
  EXPECT_THAT(refusal("\x80\x02]q\1h\1a."s), HasSubstr("64 deep"));
  std::string deep = "\x80\x02"s;
  for (int i = 0; i < 100'000; ++i) deep += "]";
  for (int i = 1; i < 100'000; ++i) deep += "a";
  EXPECT_THAT(refusal(deep + "."), HasSubstr("64 deep"));
  // Each list contains the previous one ten times: 10^30 values.
  std::string bomb = "\x80\x02]q\0"s;
  for (char i = 0; i < 30; ++i) {
    bomb += "]q"s + static_cast<char>(i + 1) + "(";
    for (int copy = 0; copy < 10; ++copy) bomb += "h"s + i;
    bomb += "e";
  }
  bomb += "\x85.";  // leaves the other lists on the stack; the value is the last one
  EXPECT_THROW((void)parse(bomb, "x.pt"), Error);
  std::string unfolding = "\x80\x02]q\0"s;
  for (char i = 0; i < 30; ++i) {
    unfolding += "("s;
    for (int copy = 0; copy < 10; ++copy) unfolding += "h"s + i;
    unfolding += "tq"s + static_cast<char>(i + 1);
  }
  unfolding += "(";
  EXPECT_THAT(refusal("\x80\x02("s + unfolding.substr(2, unfolding.size() - 3) + "t."),
              HasSubstr("unfold"));
}

TEST(Pickle, ReadsNumbersAtTheirLimits) {
  const auto number = [](const std::string& code) {
    const Pickle pickle = parse("\x80\x02"s + code + ".", "x.pt");
    return pickle.nodes[pickle.root].integer;
  };
  EXPECT_EQ(number("\x8a\0"s), 0);
  EXPECT_EQ(number("\x8a\x01\xff"s), -1);
  EXPECT_EQ(number("\x8a\x08\0\0\0\0\0\0\0\x80"s), INT64_MIN);
  EXPECT_EQ(number("J\0\0\0\x80"s), INT32_MIN);
  EXPECT_EQ(number("M\xff\xff"s), 65535);
}

}  // namespace
}  // namespace finetune::pickle
