# Run by CPack before it makes the .deb: what Debian has in other places, or compressed.
file(GLOB shares "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share"
     "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/usr/share")
foreach(share IN LISTS shares)
  file(WRITE "${share}/doc/finetune/changelog"
"finetune (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}; the project's CHANGELOG.md says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  Sun, 01 Nov 2026 00:00:00 +0000
")
  execute_process(COMMAND gzip -9n "${share}/man/man1/finetune.1" "${share}/doc/finetune/changelog"
                  COMMAND_ERROR_IS_FATAL ANY)
  file(MAKE_DIRECTORY "${share}/zsh/vendor-completions")
  file(RENAME "${share}/zsh/site-functions/_finetune" "${share}/zsh/vendor-completions/_finetune")
  file(REMOVE_RECURSE "${share}/zsh/site-functions")
endforeach()
