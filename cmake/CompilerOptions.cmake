# Warnings of our own sources; third-party includes are SYSTEM so that these can be strict.
set(FINETUNE_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                      -Woverloaded-virtual)
if(FINETUNE_WERROR)
  list(APPEND FINETUNE_WARNINGS -Werror)
endif()

add_compile_options(-fstack-protector-strong)
add_link_options(-Wl,-z,relro,-z,now)

if(FINETUNE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
