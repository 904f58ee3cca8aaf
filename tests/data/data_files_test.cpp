// SPDX-License-Identifier: MIT
#include "finetune/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::string error_of(const std::string& pattern) {
  return message_of<Error>([&] { static_cast<void>(expand_files({pattern}, "validation_file")); });
}

TEST(DataFiles, ReplacesGlobsByTheirMatchesInOrder) {
  const TemporaryFolder folder;
  for (const char* name : {"b2.txt", "b10.txt", "B.txt", "c.jsonl", "d[1].txt"}) {
    folder.write(name, "x");
  }
  EXPECT_THAT(
      expand_files({folder / "c.jsonl", folder / "[bB]*.txt"}, "train_file"),
      ElementsAre(folder / "c.jsonl", folder / "B.txt", folder / "b10.txt", folder / "b2.txt"));
  EXPECT_THAT(expand_files({folder / "d[1].txt"}, "train_file"), ElementsAre(folder / "d[1].txt"));
}

TEST(DataFiles, NamesKeyAndPathOfWhatCannotBeRead) {
  const TemporaryFolder folder;
  folder.write("empty.txt", "");
  EXPECT_GOLDEN(error_of(folder / "no.txt"));
  EXPECT_GOLDEN(error_of(folder / "*.csv"));
  EXPECT_GOLDEN(error_of(folder / "empty.txt"));
  EXPECT_GOLDEN(error_of(folder / "empty"));
  // Opening a pipe would wait for a writer forever.
  ASSERT_EQ(::mkfifo((folder / "pipe.txt").c_str(), 0600), 0);
  EXPECT_GOLDEN(error_of(folder / "pipe.txt"));
  EXPECT_GOLDEN(error_of("/dev/zero"));
}

class Folder {
 public:
  // Makes files that hold one byte.
  explicit Folder(const std::vector<std::string>& names) {
    for (const std::string& name : names) write(name, "x");
  }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    folder_.write(name, content);
  }
  [[nodiscard]] std::string path() const { return folder_ / "."; }

  // The files that a key takes, by names relative to the folder; or the error.
  [[nodiscard]] std::vector<std::string> taken(const std::string& key = "train_file",
                                               const std::string& pattern = "") const {
    std::vector<std::string> names;
    try {
      const std::string root = folder_ / "";
      for (const std::string& path : expand_files({pattern.empty() ? root : root + pattern}, key)) {
        names.push_back(path.substr(root.size()));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      names = {std::string("error: ") + error.what()};
    }
    return names;
  }

 private:
  TemporaryFolder folder_;
};

TEST(DataFiles, TakesTheDataOfAFolderAndItsSubfoldersInOrder) {
  const Folder folder({"b.jsonl", "a.jsonl.gz", ".hidden.jsonl", "inner/c.json", "__x__/d.jsonl",
                       ".git/e.jsonl", "README.md", "LICENSE", "LICENSE.txt", "README.ja.txt",
                       "dataset_infos.json", "cache-1f.arrow", "loader.py"});
  EXPECT_THAT(folder.taken(), ElementsAre("a.jsonl.gz", "b.jsonl", "inner/c.json"));
  EXPECT_THAT(folder.taken("validation_file"),
              ElementsAre("a.jsonl.gz", "b.jsonl", "inner/c.json"));
}

TEST(DataFiles, ChoosesTheSplitOfAKeyByNames) {
  const Folder hub({"README.md", "data/train-00000-of-00002.parquet",
                    "data/train-00001-of-00002-9f.parquet", "data/test-00000-of-00001.parquet",
                    "extra.parquet"});
  EXPECT_THAT(hub.taken(), ElementsAre("data/train-00000-of-00002.parquet",
                                       "data/train-00001-of-00002-9f.parquet"));
  EXPECT_THAT(hub.taken("test_file"), ElementsAre("data/test-00000-of-00001.parquet"));
  EXPECT_THAT(hub.taken("validation_file"),
              ElementsAre(AllOf(HasSubstr("has the splits 'train', 'test' by the names of its "
                                          "shards, and none for validation_file"),
                                HasSubstr("data/train-00000"))));
  const Folder files({"my_train.csv", "train_2.csv", "train_10.csv", "dev.csv", "latest.csv"});
  EXPECT_THAT(files.taken(), ElementsAre("train_10.csv", "train_2.csv", "my_train.csv"));
  EXPECT_THAT(files.taken("validation_file"), ElementsAre("dev.csv"));
  const Folder folders({"train/b.txt", "train/deep/a.txt", "val/c.txt", "notes.txt"});
  EXPECT_THAT(folders.taken(), ElementsAre("train/b.txt", "train/deep/a.txt"));
  EXPECT_THAT(folders.taken("validation_file"), ElementsAre("val/c.txt"));
  const Folder other(
      {"data/train_sft-00000-of-00001.parquet", "data/test_sft-00000-of-00001.parquet"});
  EXPECT_THAT(other.taken(), ElementsAre(HasSubstr("the splits 'test_sft', 'train_sft'")));
  // Nobody evaluates on the training data without a word.
  EXPECT_THAT(Folder({"train.jsonl"}).taken("validation_file"),
              ElementsAre(HasSubstr("has the split 'train'")));
  EXPECT_THAT(Folder({"test.jsonl"}).taken("validation_file"), ElementsAre("test.jsonl"));
}

TEST(DataFiles, ReadsTheConfigsOfADataCard) {
  const Folder folder({"a/x-1.jsonl", "a/x-2.jsonl", "b/y.jsonl", "z.jsonl"});
  folder.write("README.md",
               "---\nlicense: mit\nconfigs:\n- config_name: other\n  data_files: z.jsonl\n"
               "- config_name: default\n  data_files:\n  - split: train\n    path: a/*\n"
               "  - split: test\n    path: [\"b/*.jsonl\"]\n---\n# Card\n");
  EXPECT_THAT(folder.taken(), ElementsAre("a/x-1.jsonl", "a/x-2.jsonl"));
  EXPECT_THAT(folder.taken("test_file"), ElementsAre("b/y.jsonl"));
  folder.write("README.md", "---\nconfigs:\n- config_name: one\n  data_dir: a\n---\n");
  EXPECT_THAT(folder.taken(), ElementsAre("a/x-1.jsonl", "a/x-2.jsonl"));
  folder.write("README.md",
               "---\nconfigs:\n- config_name: one\n  data_files: z.jsonl\n- config_name: two\n"
               "  data_files: z.jsonl\n---\n");
  EXPECT_THAT(folder.taken(),
              ElementsAre(HasSubstr("several configurations ('one', 'two') and no default one")));
  folder.write("README.md", "---\nconfigs: [\n---\n");
  EXPECT_THAT(folder.taken(), ElementsAre(HasSubstr("the data card cannot be read")));
  folder.write("README.md",
               "---\nconfigs: [{data_files: [{split: train, path: gone/*}, {split: test, path: "
               "z.jsonl}]}]\n---\n");
  EXPECT_THAT(folder.taken(),
              ElementsAre(HasSubstr("no file of data for 'gone/*', which README.md names for the "
                                    "split 'train'")));
  EXPECT_THAT(folder.taken("test_file"), ElementsAre("z.jsonl"));
}

// As load_dataset() answers: other files than those that the card names are not its data.
TEST(DataFiles, RefusesADataCardOfWhichAFileIsAbsent) {
  const Folder folder(
      {"train.jsonl", "b.jsonl", "corpus.foo", "sub/c.jsonl", "license.txt", "license-plates.txt"});
  const auto with = [&](const std::string& files) {
    folder.write("README.md", "---\nconfigs: [{data_files: " + files + "}]\n---\n");
    return folder.taken();
  };
  for (const char* absent :
       {"data/train-*", "corpus.foo", "sub", "\"{train,b}.jsonl\"", "[b.jsonl, gone.jsonl]"}) {
    EXPECT_THAT(with(absent), ElementsAre(HasSubstr("has no file of data for "))) << absent;
  }
  EXPECT_THAT(with("./b.jsonl"), ElementsAre("b.jsonl"));
  EXPECT_THAT(with("license.txt"), ElementsAre("license.txt"));
  EXPECT_THAT(with("\"*.txt\""), ElementsAre("license-plates.txt"));
  EXPECT_THAT(with("\"[^b].jsonl\""), ElementsAre("b.jsonl"));
}

TEST(DataFiles, ReadsWhatSaveToDiskWrote) {
  const Folder folder({"data-00000-of-00001.arrow", "cache-77.arrow", "dataset_info.json"});
  folder.write("state.json", R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})");
  EXPECT_THAT(folder.taken(), ElementsAre("data-00000-of-00001.arrow"));
  EXPECT_THAT(folder.taken("validation_file"), ElementsAre("data-00000-of-00001.arrow"));
  const Folder dict({"train/data-00000-of-00001.arrow", "test/data-00000-of-00001.arrow",
                     "train/dataset_info.json", "train/cache-1.arrow"});
  dict.write("dataset_dict.json", R"({"splits": ["train", "test"]})");
  for (const char* split : {"train", "test"}) {
    dict.write(std::string(split) + "/state.json",
               R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})");
  }
  EXPECT_THAT(dict.taken(), ElementsAre("train/data-00000-of-00001.arrow"));
  EXPECT_THAT(dict.taken("test_file"), ElementsAre("test/data-00000-of-00001.arrow"));
  EXPECT_THAT(dict.taken("validation_file"),
              ElementsAre(HasSubstr("has the splits 'train', 'test' by dataset_dict.json")));
}

TEST(DataFiles, RefusesAFolderOfTwoKindsOrOfNone) {
  EXPECT_THAT(Folder({"a.jsonl", "notes.txt"}).taken(),
              ElementsAre(AllOf(HasSubstr("JSON ('a.jsonl')"), HasSubstr("text ('notes.txt')"))));
  EXPECT_THAT(Folder({"README.md", "wiki_00"}).taken(),
              ElementsAre(AllOf(HasSubstr("no file of data by a known ending"),
                                HasSubstr("only 'README.md', 'wiki_00'"))));
  EXPECT_THAT(Folder(std::vector<std::string>{}).taken(), ElementsAre(HasSubstr("holds no file")));
}

TEST(DataFiles, MatchesPatternsAsPythonsRecursiveGlob) {
  const Folder folder({"a.jsonl", "b/c.jsonl", "b/d/e.jsonl", ".f.jsonl", ".g/h.jsonl",
                       "b/README.md", "b/d/wiki_00"});
  EXPECT_THAT(folder.taken("train_file", "**/*.jsonl"),
              ElementsAre("a.jsonl", "b/c.jsonl", "b/d/e.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "*/*.jsonl"), ElementsAre("b/c.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "b/**/e.jsonl"), ElementsAre("b/d/e.jsonl"));
  EXPECT_THAT(folder.taken("train_file", ".g/*"), ElementsAre(".g/h.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "b/d/wiki_*"), ElementsAre("b/d/wiki_00"));
  EXPECT_THAT(folder.taken("train_file", "b/[!x].*"), ElementsAre("b/c.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "**/**/**/c.jsonl"), ElementsAre("b/c.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "**.jsonl"),
              ElementsAre(HasSubstr("must be a whole part of the path")));
  EXPECT_THAT(folder.taken("train_file", "b/*"), ElementsAre("b/c.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "b/R*"), ElementsAre(HasSubstr("which is no data")));
  EXPECT_THAT(folder.taken("train_file", "b/d/*"), ElementsAre(HasSubstr("different kinds")));
}

// Characters and not bytes; '!' alone negates; a '[' that is not closed is a character.
TEST(DataFiles, MatchesNamesAsPythonsFnmatch) {
  const Folder folder({"a.csv", "b.csv", "\u00e9.csv", "^.csv", "[x.csv", "].csv"});
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"[^b].csv", {"^.csv", "b.csv"}},
      {"?.csv", {"].csv", "^.csv", "a.csv", "b.csv", "\u00e9.csv"}},
      {"[!a].csv", {"].csv", "^.csv", "b.csv", "\u00e9.csv"}},
      {"[\u00e9].csv", {"\u00e9.csv"}},
      {"[\u00e0-\u00ff].csv", {"\u00e9.csv"}},
      {"[a-b].csv", {"a.csv", "b.csv"}},
      {"[]].csv", {"].csv"}},
      {"[x*", {"[x.csv"}},
      {"*v", {"[x.csv", "].csv", "^.csv", "a.csv", "b.csv", "\u00e9.csv"}},
      {"*a*.*v", {"a.csv"}}};
  for (const auto& [pattern, names] : cases) {
    EXPECT_THAT(folder.taken("train_file", pattern), ::testing::ElementsAreArray(names)) << pattern;
  }
}

// A card from anywhere: the work is the product of both lengths.
TEST(DataFiles, MatchesAPatternOfManyStarsAtOnce) {
  std::string deep;
  std::string stars;
  for (int i = 0; i < 25; ++i) deep += "d/";
  for (int i = 0; i < 25; ++i) stars += i % 2 == 0 ? "**/d/" : "**/*/";
  const Folder folder({deep + "a.jsonl", std::string(100, 'a') + ".csv"});
  folder.write("README.md", "---\nconfigs: [{data_files: \"" + stars + "x.jsonl\"}]\n---\n");
  EXPECT_THAT(folder.taken(), ElementsAre(HasSubstr("has no file of data for ")));
  std::string name;
  for (int i = 0; i < 50; ++i) name += "*a";
  folder.write("README.md", "---\nconfigs: [{data_files: \"" + name + "b\"}]\n---\n");
  EXPECT_THAT(folder.taken(), ElementsAre(HasSubstr("has no file of data for ")));
}

TEST(DataFiles, FollowsALinkThatLeadsBackOnlyOnce) {
  const Folder folder({"a.jsonl", "b/c.jsonl"});
  std::filesystem::create_directory_symlink("..", folder.path() + "/b/up");
  EXPECT_THAT(folder.taken(), ElementsAre("a.jsonl", "b/c.jsonl"));
  EXPECT_THAT(folder.taken("train_file", "**/c.jsonl"), ElementsAre("b/c.jsonl"));
}

TEST(DataFiles, NamesTheNearestFileAndSaysThatAddressesAreNotRead) {
  const Folder folder({"lighthouse.txt"});
  EXPECT_THAT(folder.taken("train_file", "lighthuose.txt"),
              ElementsAre(HasSubstr("did you mean 'lighthouse.txt'?")));
  EXPECT_GOLDEN(error_of("https://example.com/a.jsonl"));
}

TEST(DataFiles, KnowsKindsByTheirEnding) {
  EXPECT_EQ(file_kind("a.jsonl"), FileKind::kJsonLines);
  EXPECT_EQ(file_kind("a.JSON"), FileKind::kJson);
  EXPECT_EQ(file_kind("a.csv"), FileKind::kCsv);
  EXPECT_EQ(file_kind("a.tsv"), FileKind::kTsv);
  EXPECT_EQ(file_kind("a.conll"), FileKind::kConll);
  EXPECT_EQ(file_kind("a.parquet"), FileKind::kParquet);
  EXPECT_EQ(file_kind("a.arrow.zst"), FileKind::kArrow);
  EXPECT_EQ(file_kind("a.feather"), FileKind::kArrow);
  EXPECT_EQ(file_kind("a.txt"), FileKind::kText);
  EXPECT_EQ(file_kind("folder.csv/corpus"), FileKind::kText);
  EXPECT_EQ(file_kind("a.jsonl.gz"), FileKind::kJsonLines);
  EXPECT_EQ(file_kind("a.csv.ZST"), FileKind::kCsv);
  EXPECT_EQ(file_kind("a.gz"), FileKind::kText);
  EXPECT_EQ(file_kind("x/a.tfrecord"), FileKind::kTfRecord);
  EXPECT_EQ(file_kind("x/a.tfrecord-00001-of-00010.gz"), FileKind::kTfRecord);
  EXPECT_EQ(kind_by_ending("a.tfrecord-1.jsonl"), FileKind::kJsonLines);
  EXPECT_EQ(kind_by_ending("a.TOKENS"), FileKind::kText);
  EXPECT_EQ(kind_by_ending("a.weights"), std::nullopt);
  EXPECT_GOLDEN(message_of<Error>([] { static_cast<void>(file_kind("x/a.xlsx")); }));
}

TEST(DataFiles, CountsLinesOfTextAndRowsOfJson) {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", "a\n\nb\r\nc\rd");
  const std::string json = folder.write("b.jsonl", "{}\n\n \t\n{}");
  EXPECT_EQ(count_rows({text}, "train_file"), 5);
  EXPECT_EQ(count_rows({text, json}, "train_file"), 7);
}

// Line ends of all kinds are recognised at the boundaries of the reader's 1 MiB buffer too.
TEST(DataFiles, CountsALineEndThatCrossesTheBufferOnce) {
  const TemporaryFolder folder;
  const std::string half((size_t{1} << 20) - 1, 'x');
  EXPECT_EQ(count_rows({folder.write("a.txt", half + "\r\ny\n")}, "train_file"), 2);
  EXPECT_EQ(count_rows({folder.write("b.txt", half + "\r\r\ny")}, "train_file"), 3);
}

// Expected values: datasets' ReadInstruction for train[:p%].
TEST(DataFiles, SplitsRowsAsDatasetsRoundsPercentages) {
  struct Case {
    int64_t rows, percentage, validation;
  };
  for (const Case& c : std::vector<Case>{{100, 5, 5},
                                         {30, 5, 2},
                                         {50, 5, 2},
                                         {70, 5, 4},
                                         {1000, 1, 10},
                                         {11, 5, 1},
                                         {29, 50, 14}}) {
    const RowSplit split = split_rows(c.rows, c.percentage);
    EXPECT_EQ(split.validation.begin, 0);
    EXPECT_EQ(split.validation.end, c.validation) << c.rows;
    EXPECT_EQ(split.train.begin, c.validation);
    EXPECT_EQ(split.train.end, c.rows);
  }
}

TEST(DataFiles, RefusesASplitThatLeavesAPartEmpty) {
  EXPECT_GOLDEN(message_of<Error>([] { static_cast<void>(split_rows(4, 5)); }));
  EXPECT_GOLDEN(message_of<Error>([] { static_cast<void>(split_rows(4, 100)); }));
  EXPECT_THROW(static_cast<void>(split_rows(400, -3)), Error);
}

}  // namespace
}  // namespace finetune
