// SPDX-License-Identifier: MIT
#include "finetune/data/retrieval_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using testing::TemporaryFolder;

class Beir {
 public:
  Beir() {
    std::filesystem::create_directories(folder_ / "qrels");
    folder_.write("corpus.jsonl",
                  "{\"_id\": \"d1\", \"title\": \"T\", \"text\": \"one\"}\n"
                  "{\"_id\": \"d2\", \"text\": \"two\"}\n"
                  "{\"_id\": 3, \"text\": \"three\"}\n");
    folder_.write("queries.jsonl",
                  "{\"_id\": \"q1\", \"text\": \"first\"}\n"
                  "{\"_id\": \"unasked\", \"text\": \"second\"}\n"
                  "{\"_id\": \"q3\", \"text\": \"third\"}\n");
    judge("test", "q3\td1\t2\nq1\t3\t1\nq1\td2\t0\nq1\t3\t1\nq3\tlost\t1\n");
  }
  void judge(const std::string& split, const std::string& rows) const {
    folder_.write("qrels/" + split + ".tsv", "query-id\tcorpus-id\tscore\n" + rows);
  }
  [[nodiscard]] std::string path() const { return folder_ / ""; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

  [[nodiscard]] RetrievalTask read(std::optional<int64_t> most = {}) const {
    return read_retrieval_task(retrieval_files({path()}, "validation_file").value(), {}, most);
  }

 private:
  TemporaryFolder folder_;
};

std::string refusal_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RetrievalFiles, AreThoseOfAFolderOfBeir) {
  const Beir beir;
  const auto files = retrieval_files({beir.path()}, "validation_file");
  ASSERT_TRUE(files);
  EXPECT_TRUE(files->corpus.ends_with("/corpus.jsonl"));
  EXPECT_TRUE(files->queries.ends_with("/queries.jsonl"));
  EXPECT_TRUE(files->judgements.ends_with("/qrels/test.tsv"));
  EXPECT_FALSE(retrieval_files({files->corpus}, "validation_file"));
  EXPECT_FALSE(retrieval_files({files->corpus, files->queries}, "validation_file"));
}

TEST(RetrievalFiles, AreJudgedByTheSplitOfTheKey) {
  const Beir beir;
  beir.judge("dev", "q1\td1\t1\n");
  beir.judge("train", "q1\td1\t1\n");
  const auto split = [&](const std::string& key) {
    return retrieval_files({beir.path()}, key)->judgements;
  };
  EXPECT_TRUE(split("validation_file").ends_with("qrels/dev.tsv"));
  EXPECT_TRUE(split("test_file").ends_with("qrels/test.tsv"));
  EXPECT_NE(refusal_of([&] { split("train_file"); }).find("BEIR"), std::string::npos);
}

TEST(RetrievalTask, HasTheQueriesThatAreJudged) {
  const RetrievalTask task = Beir().read();
  EXPECT_EQ(task.queries, "{\"text\":\"first\"}\n{\"text\":\"third\"}\n");
  EXPECT_EQ(task.relevant, (std::vector<std::vector<int64_t>>{{2}, {0}}));
  EXPECT_EQ(task.relevant_count, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(task.absent, 1);
  EXPECT_EQ(Beir().read(1).relevant.size(), 1U);
}

TEST(RetrievalFiles, LackNoneOfThem) {
  for (const char* name : {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}) {
    const Beir beir;
    std::filesystem::remove(beir.folder() / name);
    const std::string why =
        refusal_of([&] { (void)retrieval_files({beir.path()}, "validation_file"); });
    EXPECT_NE(why.find("BEIR"), std::string::npos) << name;
  }
  const Beir one, two;
  EXPECT_NE(refusal_of([&] {
              (void)retrieval_files({one.path(), two.path()}, "validation_file");
            }).find("name one folder"),
            std::string::npos);
}

TEST(RetrievalTask, RefusesRowsThatCannotBeRead) {
  const auto refused = [](const char* split, const char* rows) {
    const Beir beir;
    beir.judge(split, rows);
    return refusal_of([&] { (void)beir.read(); });
  };
  EXPECT_NE(refused("test", "q1\td1\tmuch\n").find("test.tsv:2"), std::string::npos);
  EXPECT_NE(refused("test", "q9\td1\t1\n").find("judges no query"), std::string::npos);
  const Beir twice;
  twice.folder().write("corpus.jsonl",
                       "{\"_id\": \"d1\", \"text\": \"one\"}\n"
                       "{\"_id\": \"d1\", \"text\": \"two\"}\n");
  EXPECT_NE(refusal_of([&] { (void)twice.read(); }).find("an _id twice"), std::string::npos);
  const Beir beir;
  beir.folder().write("queries.jsonl", "{\"id\": \"q1\", \"text\": \"first\"}\n");
  EXPECT_NE(refusal_of([&] { (void)beir.read(); }).find("queries.jsonl:1"), std::string::npos);
}

}  // namespace
}  // namespace finetune
